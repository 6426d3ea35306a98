"""Product for chapter 7: the profile's base model and prefixes as a FasterTransformer folder."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.prefix import products as prefix
from course_lib.prefix.config import FILE
from course_lib.prefix.products import MODEL
from course_lib.serving.config import RECIPE_SECTION, RecipeConfig
from course_lib.workspace.products import Product

if TYPE_CHECKING:
    from course_lib.serving.export import FtExport
    from course_lib.serving.ft_source import Corrections

CODE = ("serving/export.py", "serving/ini.py", "serving/layout.py", "serving/ft_source.py", "serving/weight_map.py")


def export_for(ranks: int, folder: Path, corrections: "Corrections | None" = None) -> "FtExport":
    """Export the base and its prefixes like WEIGHTS, but for `ranks` ranks; `corrections` None corrects all."""
    recipe = replace(RECIPE_SECTION.read(), tensor_parallel=ranks)
    return _exported(recipe, folder, [prefix.base().path(), *(task.path() for task in prefix.tasks())], corrections)


def _exported(
    recipe: RecipeConfig, folder: Path, inputs: list[Path], corrections: "Corrections | None" = None
) -> "FtExport":
    from course_lib.serving.export import export, named

    base, *tasks = inputs
    prefixes = [named(f"{task.name}={task / FILE}") for task in tasks]
    return export(base / MODEL, folder, recipe.tensor_parallel, recipe.dtype, prefixes, corrections, recipe.name)


def _export(folder: Path, inputs: list[Path], recipe: RecipeConfig) -> dict[str, Any]:
    _, *tasks = inputs
    report = _exported(recipe, folder, inputs)
    return {"files": report.files, "bytes": report.size, "tasks": [task.name for task in tasks]}


# A folder for `course serve`, whose tasks are the profile's prefixes, in order.
WEIGHTS = Product(
    "serving/weights",
    build=_export,
    settings=RECIPE_SECTION.read,
    inputs=lambda: (prefix.base(), *prefix.tasks()),
    code=CODE,
)


def products() -> list[Product]:
    """Return the chapter's only product."""
    return [WEIGHTS]
