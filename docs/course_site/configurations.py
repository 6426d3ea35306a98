"""The table of the bundled settings files, from course_lib/configs, and the text of each file."""

import re
from pathlib import Path

from course_lib.settings.profiles import BUNDLED, CONFIGS
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from course_authors.pages import anchor
from course_site import page

# What the first comments of a run say; tests/*/test_configs.py compute these figures again.
COMMENTS = ("Parameters", "Tokens per step", "Memory", "Meant for")
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
            # The file has the factors of the tokens and the parts of the memory.
            tokens = said.get("Tokens per step", "").rpartition("= ")[2].partition(";")[0]
            memory = said.get("Memory", "").partition(" (")[0]
            rows.append([said.get("Parameters", ""), tokens, memory, said.get("Meant for", "")])
        columns = [number for number in range(len(rows[0])) if any(row[number] for row in rows)]
        headings = ("parameters", "a step", "memory", "meant for")
        links = [page.link(f"#{anchor(path.name)}", page.code(path.name)) for path in runs]
        family += page.table(
            ("file", *(headings[number] for number in columns)),
            [(link, *(row[number] for number in columns)) for link, row in zip(links, rows, strict=True)],
        )
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
