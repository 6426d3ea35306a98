"""Product for chapter 7: the profile's base model and prefixes as a FasterTransformer folder."""

from functools import partial
from pathlib import Path
from typing import Any

from course_lib import config
from course_lib.prefix import products as prefix
from course_lib.prefix.config import FILE
from course_lib.prefix.products import MODEL
from course_lib.serving.config import RecipeConfig
from course_lib.workspace import Definition, Product, product

CODE = ("serving/export.py", "serving/ini.py", "serving/layout.py", "serving/ft_source.py", "serving/weight_map.py")


def products() -> list[Product]:
    """Return the chapter's only product."""
    return [WEIGHTS]


@product("serving/weights")
def WEIGHTS() -> Definition:
    """A folder for `course serve`, whose tasks are the profile's prefixes, in order."""
    recipe = config.section("serving.recipe", RecipeConfig)
    return Definition(partial(_export, recipe), recipe, (prefix.BASE, *prefix.tasks()), CODE)


def _export(recipe: RecipeConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.serving.export import export
    from course_lib.serving.tasks import named

    base, *tasks = inputs
    prefixes = [named(f"{task.name}={task / FILE}") for task in tasks]
    report = export(base / MODEL, folder, recipe.tensor_parallel, recipe.dtype, prefixes, name=recipe.name)
    return {"files": report.files, "bytes": report.size, "tasks": [task.name for task in tasks]}
