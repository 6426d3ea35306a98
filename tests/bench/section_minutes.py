"""Minutes to teach each section and each exercise, for the schedules of docs/instructor.

    python -m tests.bench.section_minutes measure [NOTEBOOK...]    # runs the notebooks in this workspace, minutes each
    python -m tests.bench.section_minutes write                    # the numbers in docs/instructor, in a second

`measure` takes the seconds of every cell with the products already built, as in a class on the morning after `make
course`. Behind the last cell it runs the experiments of docs/instructor/solutions.md in the same kernel and keeps the
verdict of each. It writes section_minutes.json. `write` applies the rule below to the notebooks and these seconds. It
fills the columns of sections.md, the minutes of the exercises in solutions.md, and the minutes and times of day of
one-day.md and two-days.md; texts and the order of the rows stay as they are.
"""

import ast
import json
import math
import re
import sys
import time
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import nbformat
from course_lib.exercises import Exercise
from course_lib.files import atomic_write
from course_lib.workspace.chapters import CHAPTERS

from tests.notebooks.blanks import is_blank, is_folded

# The rule. Speech: words a minute. Code: seconds a line. Predict: minutes to write a guess down, run, and compare.
SPEECH, CODE, PREDICT = 130, 10, 2
# Minutes of an exercise: a function takes FUNCTION and half a minute for each line of its solution; an experiment or a
# value takes EXPERIMENT and the time of its runs.
FUNCTION, LINE, EXPERIMENT = 5, 0.5, 8

KIT = Path(__file__).parents[2] / "docs/instructor"
SECONDS = Path(__file__).with_suffix(".json")
# Notebooks in course order, and the modules of their exercises.
NOTEBOOKS = {path.stem: (path, c.notebooks[path.stem]) for c in CHAPTERS for path in c.paths}

HEADING = re.compile(r"^(#{2,3}) (.+?)(?: \((core|optional)\))?$", re.M)
NUMBER = re.compile(r"(\d[ab]?\+?)\.\d+ ")
TIME = re.compile(r"(\d\d):(\d\d)")
MINUTES = re.compile(r"\b\d+ minutes")  # of an exercise, in solutions.md


@dataclass
class Part:
    """A section, the opening or the summary of a notebook, or an exercise."""

    name: str
    kind: str  # "core", "optional" or "exercise"
    words: int = 0
    lines: int = 0
    predictions: int = 0
    seconds: float = 0.0

    @property
    def minutes(self) -> int:
        """Whole minutes by the rule, rounded up from three seconds on."""
        return max(1, math.ceil(self.exact - 0.05))

    @property
    def exact(self) -> float:
        """Minutes by the rule. An exercise with lines is a function, one without an experiment or a value."""
        run = self.seconds / 60
        if self.kind == "exercise":
            return FUNCTION + LINE * self.lines if self.lines else EXPERIMENT + run
        return self.words / SPEECH + CODE * self.lines / 60 + PREDICT * self.predictions + run


def label(notebook: nbformat.NotebookNode) -> str:
    """The chapter's number as its sections have it: 1, 4a, 4a+, …"""
    found = next(filter(None, (re.search(r"^## (\d[ab]?\+?)\.1 ", cell.source, re.M) for cell in notebook.cells)))
    return found[1]


def spoken(text: str) -> int:
    """The number of words of a Markdown text: of links the text alone, without the list of sources and what follows."""
    text = text.partition("**Sources.**")[0]
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return len(re.findall(r"\S*[A-Za-z0-9぀-ヿ一-鿿]\S*", text))


def cut(notebook: nbformat.NotebookNode) -> list[tuple[str, str, list[int], str]]:
    """The parts of a notebook: name, core or optional, the numbers of its code cells, its text.

    A heading begins a part if it is of the second level or says (core) or (optional).
    """
    chapter = label(notebook)
    parts: list[tuple[str, str, list[int], str]] = [(f"Opening of {chapter}", "core", [], "")]
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            parts[-1][2].append(number)
            continue
        at = 0
        for found in HEADING.finditer(cell.source):
            _add(parts, cell.source[at : found.start()])
            at = found.end()
            hashes, name, kind = found.groups()
            if hashes == "##" or kind:
                name = f"{name} of {chapter}" if name in ("Exercises", "Summary") else name
                parts.append((name, kind or "core", [], ""))
            _add(parts, name)
        _add(parts, cell.source[at:])
    return parts


def _add(parts: list[tuple[str, str, list[int], str]], text: str) -> None:
    name, kind, cells, before = parts[-1]
    parts[-1] = (name, kind, cells, f"{before}\n{text}")


@cache
def parts(stem: str) -> list[Part]:
    """The sections of a notebook and its exercises, each with what the rule needs."""
    path, module = NOTEBOOKS[stem]
    notebook = nbformat.read(path, as_version=4)
    stored = json.loads(SECONDS.read_text(encoding="utf8"))["seconds"] if SECONDS.exists() else {}
    found = []
    for name, kind, cells, text in cut(notebook):
        if name.startswith("Exercises of"):
            found += [
                Part(f"Exercise {label(notebook)}.{number}", "exercise", lines=solution_lines(exercise))
                for number, exercise in enumerate(exercises(module), 1)
            ]
            continue
        # What the learner writes is an exercise; the course's version of it is folded and not read aloud.
        read = [
            cell for cell in (notebook.cells[number] for number in cells) if not (is_folded(cell) or is_blank(cell))
        ]
        source = [line for cell in read for line in cell.source.split("\n")]
        lines = sum(bool(line.strip()) for line in source)
        found.append(Part(name, kind, spoken(text), lines, text.count("**Predict, then change")))
    for part in found:
        part.seconds = stored.get(part.name, 0.0)
    return found


def exercises(module: str) -> tuple[Exercise, ...]:
    """The exercises of a notebook, by the module that its set-up names."""
    loaded: tuple[Exercise, ...] = import_module(f"course_lib.exercises.{module}").CHAPTER.exercises
    return loaded


def solution_lines(exercise: Exercise) -> int:
    """The number of lines of the functions and classes that solve an exercise, without their docstrings; else 0."""
    lines = 0
    for definition in ast.parse(exercise.code()).body:
        if isinstance(definition, ast.FunctionDef | ast.ClassDef):
            if ast.get_docstring(definition):
                definition.body = definition.body[1:]
            lines += len(ast.unparse(definition).splitlines())
    return lines


def experiments() -> dict[str, str]:
    """The code of solutions.md that runs an experiment, by the exercise's name."""
    text = (KIT / "solutions.md").read_text(encoding="utf8")
    found = {}
    for section in re.split(r"^#{2,3} ", text, flags=re.M):
        if code := re.search(r"^```python\n(.*?)^```", section, re.M | re.S):
            found[section.split("\n")[0]] = code[1]
    return found


def digest(code: str) -> str:
    """A short digest, by which section_minutes.json names the code that was run."""
    return sha256(code.encode()).hexdigest()[:12]


def measure(stem: str) -> dict[str, Any]:
    """Run a notebook and its experiments. Returns seconds by part, and the verdict and the digest of each experiment."""
    from nbclient import NotebookClient

    path, _ = NOTEBOOKS[stem]
    notebook = nbformat.read(path, as_version=4)
    sections = {cell: name for name, _, cells, _ in cut(notebook) for cell in cells}
    chapter = label(notebook)
    codes = {name: code for name, code in experiments().items() if name.startswith(f"Exercise {chapter}.")}
    for name, code in codes.items():
        sections[len(notebook.cells)] = name
        notebook.cells.append(nbformat.v4.new_code_cell(code))
    started, seconds, verdicts = 0.0, dict.fromkeys(sections.values(), 0.0), {}

    def begin(**_: Any) -> None:
        nonlocal started
        started = time.perf_counter()

    def end(cell: nbformat.NotebookNode, cell_index: int, **_: Any) -> None:
        name = sections[cell_index]
        seconds[name] = round(seconds[name] + time.perf_counter() - started, 2)
        if name in codes:
            verdicts[name] = {"code": digest(codes[name]), "verdict": _said(cell)}

    client = NotebookClient(
        notebook,
        timeout=1800,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_execute=begin,
        on_cell_executed=end,
    )
    client.execute()
    return {"seconds": seconds, "experiments": verdicts}


def _said(cell: nbformat.NotebookNode) -> str:
    """The last line of a cell's output."""
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return next((str(text).strip().split("\n")[-1] for text in reversed(texts) if text), "")


def rewrite(text: str, by_name: dict[str, Part]) -> str:
    """Return a file of the kit with the numbers of its tables computed again."""
    lines, clock, section = [], None, ""
    for line in text.split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and (time_of_day := TIME.fullmatch(cells[0])):
            clock = int(time_of_day[1]) * 60 + int(time_of_day[2]) if clock is None else clock
            length = by_name[cells[2]].minutes if cells[2] in by_name else int(cells[1])
            line = f"| {clock // 60:02}:{clock % 60:02} | {length} | {cells[2]} | {cells[3]} |".replace("|  |", "| |")
            clock += length
        elif line.startswith("|") and len(cells) == 7 and cells[0] in by_name:
            part = by_name[cells[0]]
            numbers = part.kind, part.words or "", part.lines or "", f"{part.seconds:.0f}", part.minutes
            line = f"| {cells[0]} | {' | '.join(map(str, numbers))} | {cells[6]} |"
        elif not line.startswith("|"):
            # A table is a day.
            clock = None
            if heading := re.match(r"#+ (.*)", line):
                section = heading[1]
            elif section in by_name:
                line = MINUTES.sub(f"{by_name[section].minutes} minutes", line)
        lines.append(line)
    return "\n".join(lines)


def all_parts() -> dict[str, Part]:
    """All sections and exercises by name, in course order."""
    return {part.name: part for stem in NOTEBOOKS for part in parts(stem)}


def main(arguments: list[str]) -> None:
    """Measure or write, as the module's docstring says."""
    action, *chosen = arguments or [""]
    if action == "measure":
        content: dict[str, Any] = json.loads(SECONDS.read_text(encoding="utf8")) if SECONDS.exists() else {}
        for stem in chosen or NOTEBOOKS:
            found = measure(stem)
            for key, values in found.items():
                content[key] = content.get(key, {}) | values
            print(stem, f"{sum(found['seconds'].values()):.0f} s", found["experiments"], flush=True)
            with atomic_write(SECONDS) as file:
                file.write(json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n")
    elif action == "write":
        for name in ("sections.md", "solutions.md", "one-day.md", "two-days.md"):
            path = KIT / name
            path.write_text(rewrite(path.read_text(encoding="utf8"), all_parts()), encoding="utf8")
    else:
        sys.exit("usage: python -m tests.bench.section_minutes measure [NOTEBOOK...] | write")


if __name__ == "__main__":
    main(sys.argv[1:])
