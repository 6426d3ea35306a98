"""The product of chapter 7: the profile's base model and prefixes as a FasterTransformer folder."""

from functools import partial
from pathlib import Path
from typing import Any

from course_lib import config
from course_lib.prefix.products import BASE, FILE, MODEL, task_settings
from course_lib.product import Product
from course_lib.serving.config import RecipeConfig

CODE = ("serving/export.py", "serving/ini.py", "serving/layout.py", "serving/ft_source.py", "serving/weight_map.py")


def products() -> list[Product]:
    """Return the product serving/weights, a folder that `course serve` takes.

    Its tasks are the profile's prefixes, in their order.
    """
    recipe = config.section("serving.recipe", RecipeConfig)
    tasks = tuple(f"prefix/{name}" for name in task_settings())
    return [Product("serving/weights", partial(_export, recipe), recipe, (BASE, *tasks), CODE)]


def _export(recipe: RecipeConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.serving.export import export
    from course_lib.serving.tasks import named

    base, *tasks = inputs
    prefixes = [named(f"{task.name}={task / FILE}") for task in tasks]
    written = folder / "written"
    report = export(base / MODEL, written, recipe.tensor_parallel, recipe.dtype, prefixes, name=recipe.name)
    for path in written.iterdir():
        path.rename(folder / path.name)
    written.rmdir()
    return {"files": report.files, "bytes": report.size, "tasks": [task.name for task in tasks]}
