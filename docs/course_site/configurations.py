"""The table of the bundled settings files, from course_lib/configs, and the text of each file."""

import re
from pathlib import Path

from course_lib.profiles import BUNDLED, CONFIGS
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from course_site import page

# What the first comments of a run say; tests/*/test_configs.py compute these figures again.
COMMENTS = ("Parameters", "Tokens per step", "Memory", "Meant for", "Recipe")
FAMILIES = {
    "gpt2": "GPT-2: `course pretrain -c FILE`",
    "gpt-neox": "GPT-NeoX: `course pretrain -c FILE`",
    "gptsan": "GPTSAN: `course gptsan train -c FILE`",
    "prefix": "Prefixes: `course prefix train -c FILE`",
}


class Configurations(SphinxDirective):
    """The bundled runs by family and the profiles: a table of each, then the files."""

    def run(self) -> list[nodes.Node]:
        """Return a section per family."""
        built: list[nodes.Node] = []
        files = {path.stem: path for path in sorted(CONFIGS.glob("*.yaml"))}
        for family, title in FAMILIES.items():
            runs = [path for name, path in files.items() if name.startswith(f"{family}-")]
            built.append(self._family(title, runs))
        built.append(self._profiles([files[name] for name in BUNDLED]))
        if left := [name for name in files if name not in BUNDLED and not name.startswith(tuple(FAMILIES))]:
            raise self.error(f"settings files of no family: {', '.join(left)}")
        return built

    def _family(self, title: str, runs: list[Path]) -> nodes.section:
        name, _, command = title.partition(": ")
        family = page.section(self, name)
        family += page.paragraph(f"Run with {command}; plan with `course memory -c FILE`.")
        rows = []
        for path in runs:
            said = comments(path)
            rows.append((page.link(f"#{page.anchor(path.name)}", page.code(path.name)), *map(said.get, COMMENTS[:4])))
        family += page.table(("file", *COMMENTS[:4]), [[cell or "" for cell in row] for row in rows])
        family += [self._file(path) for path in runs]
        return family

    def _profiles(self, files: list[Path]) -> nodes.section:
        built = page.section(self, "Profiles")
        built += page.paragraph("What the notebooks and `course run` build; `COURSE_PROFILE` chooses one.")
        built += [self._file(path) for path in files]
        return built

    def _file(self, path: Path) -> nodes.section:
        self.env.note_dependency(str(path))
        built = page.section(self, path.name, [path.name])
        built += page.block(path.read_text(encoding="utf8").rstrip(), "yaml")
        return built


def comments(path: Path) -> dict[str, str]:
    """Return what the first comments of a run say, by the words before the colon."""
    found = {}
    for name in COMMENTS:
        if match := re.search(rf"^# {name}: (.*)$", path.read_text(encoding="utf8"), re.MULTILINE):
            found[name] = match[1]
    return found


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("configurations", Configurations)
