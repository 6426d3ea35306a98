"""The reference of the library's public functions and classes, from their docstrings, by Sphinx's autodoc.

Public is each name without an underscore in a module of course_lib. Left out are modules of commands, which the
reference of commands shows, and the exercises, which are their solutions.
"""

import inspect
import re
import sys
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import course_lib
from docutils import nodes
from pydantic.dataclasses import is_pydantic_dataclass
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from course_site import page
from course_site.links import web

LIBRARY = Path(course_lib.__file__).parent
PACKAGES = sorted(path.parent.name for path in LIBRARY.glob("*/__init__.py") if path.parent.name != "exercises")
# "* " at the start of a line, which begins an element of a list, or a character with a meaning in reStructuredText.
MARKUP = re.compile(r"^(\s*\* )|([\\*|]|_(?!\w))", re.MULTILINE)
LEFT_OUT = re.compile(r"(^|_)(cli|command_table|notebook_bar)$")


def modules(package: str) -> list[str]:
    """Return the names of a package's documented modules; "" stands for the modules outside the packages."""
    paths = sorted((LIBRARY / package).glob("*.py"))
    names = [".".join(filter(None, ("course_lib", package, path.stem))) for path in paths if path.stem != "__init__"]
    return [name for name in names if not LEFT_OUT.search(name.rpartition(".")[2])]


class Api(SphinxDirective):
    """The public names of a package, by module; without an argument, those of the modules outside packages."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a section per module."""
        package = self.arguments[0] if self.arguments else ""
        if package and package not in PACKAGES:
            raise self.error(f"no package {package!r}; allowed: {', '.join(PACKAGES)}")
        initial = ".".join(filter(None, ("course_lib", package)))
        built = self._documented(initial, ":no-index:")
        for module in modules(package):
            section = page.section(self, module)
            section += self._documented(module, ":members:", ":member-order: bysource")
            _resolve(section, sys.modules[module])
            built.append(section)
        return built

    def _documented(self, module: str, *options: str) -> list[nodes.Node]:
        lines = [f".. automodule:: {module}", *(f"   {option}" for option in options)]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


def _resolve(content: nodes.Element, module: ModuleType) -> None:
    """Complete the names of types without a module, since several modules may have types of the same name."""
    for link in content.findall(addnodes.pending_xref):
        if link.get("refdomain") == "py" and link["reftarget"].isidentifier():
            link["reftarget"] = _full_name(module, link["reftarget"])


def _full_name(module: ModuleType, name: str) -> str:
    """Return the name of a type with its module, or the name if the module does not import it."""
    target: Any = getattr(module, name, None)
    if hasattr(target, "__qualname__"):
        return f"{target.__module__}.{target.__qualname__}"
    # An import for type checkers only.
    found = re.search(rf"^    from (course_lib[\w.]*) import .*\b{name}\b", inspect.getsource(module), re.MULTILINE)
    return f"{found[1]}.{name}" if found else name


def as_rst(text: str) -> str:
    """Return a docstring of the course as reStructuredText: `code` is literal, and everything else plain text."""
    parts = re.split(r"`([^`]+)`", text)
    plain = [MARKUP.sub(lambda match: match[1] or f"\\{match[2]}", part) for part in parts[::2]]
    codes = [f"\\ ``{' '.join(code.split())}``\\ " for code in parts[1::2]]
    pairs = zip(plain, [*codes, ""], strict=True)
    return "".join(chain.from_iterable(pairs))


def _docstring(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = as_rst("\n".join(lines)).split("\n")


def _signature(
    _app: Sphinx, what: str, _name: str, object: Any, _options: Any, signature: str | None, result: str | None
) -> tuple[str, str | None] | None:
    """Leave out the fields of settings classes, which the reference of settings lists, and defaults that are no Python.

    Without the latter, such as `<factory>`, Sphinx can read the types of the signature.
    """
    if what == "class" and is_pydantic_dataclass(object):
        return "", ""
    return (re.sub(r"= ?<[^<>]*>", "= ...", signature), result) if signature else None


def _skip(_app: Sphinx, _what: str, _name: str, object: Any, *_: Any) -> bool | None:
    """Skip the fields of named tuples, whose docstrings are Python's own."""
    return True if str(getattr(object, "__doc__", "")).startswith("Alias for field number") else None


def source_address(domain: str, info: dict[str, str]) -> str | None:
    """Return the address of an object's source on GitHub."""
    target: Any = sys.modules.get(info["module"])
    if domain != "py" or target is None:
        return None
    for name in info["fullname"].split("."):
        target = getattr(target, name, None)
    try:
        target = inspect.unwrap(target)
        file = inspect.getsourcefile(target)
        return web(Path(str(file)).resolve(), inspect.getsourcelines(target)[1])
    # A constant has no source lines.
    except (TypeError, OSError, ValueError):
        return None


def setup(app: Sphinx) -> None:
    """Register the directive and autodoc's events."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("api", Api)
    # Before napoleon, which reads the sections of docstrings.
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-skip-member", _skip)
