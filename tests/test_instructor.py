"""The instructor's kit in docs/instructor: minutes by the rule, schedules that add up and run in their order, right solutions."""

import ast
import builtins
import re
from importlib import import_module

import nbformat
import pytest

from tests.bench import section_minutes
from tests.bench.section_minutes import KIT, NOTEBOOKS, all_parts, exercises

PAGES = {path.stem: path.read_text(encoding="utf8") for path in sorted(KIT.glob("*.md"))}
PARTS = all_parts()
SCHEDULES = ("one-day", "two-days")
# Longest time without a break, and the longest day [minutes]
SITTING, DAY = 120, 510
# Notebooks that no schedule teaches.
OPTIONAL = ("4a+", "6b")


def days(name: str) -> list[list[tuple[int, int, str, str]]]:
    """The days of a schedule: rows of start [minutes after midnight], length [minutes], what, and what to do."""
    found: list[list[tuple[int, int, str, str]]] = []
    for table in re.split(r"^\| time .*\n.*\n", PAGES[name], flags=re.M)[1:]:
        rows = re.findall(r"^\| (\d\d):(\d\d) \| (\d+) \| ([^|]+?) \|(.*)\|$", table, re.M)
        found.append([(int(hours) * 60 + int(minutes), int(length), *rest) for hours, minutes, length, *rest in rows])
    return found


def listed_minutes() -> dict[str, int]:
    """The minutes of each part in the tables of sections.md."""
    rows = re.findall(r"^\| ([^|]+?) \| (\w+) \| \d* \| \d* \| \d+ \| (\d+) \|", PAGES["sections"], re.M)
    return {name: int(minutes) for name, _, minutes in rows}


@pytest.mark.rehearse
def test_the_minutes_of_all_parts_follow_from_the_rule() -> None:
    """A minute more or less is allowed, so that a word changed in a notebook breaks nothing."""
    listed = listed_minutes()
    assert list(listed) == list(PARTS)
    wrong = {name: (listed[name], part.exact) for name, part in PARTS.items() if abs(listed[name] - part.minutes) > 1}
    assert wrong == {}, "run `python -m tests.bench.section_minutes write`"


@pytest.mark.rehearse
def test_the_rule_by_hand() -> None:
    part = section_minutes.Part("x", "core", words=260, lines=12, predictions=1, seconds=30.0)
    assert part.exact == 2 + 2 + 2 + 0.5 and part.minutes == 7
    assert section_minutes.Part("x", "exercise", lines=4).minutes == 7


@pytest.mark.rehearse
@pytest.mark.parametrize("name", SCHEDULES)
def test_times_are_continuous_and_minutes_those_of_the_sections(name: str) -> None:
    listed = listed_minutes()
    for rows in days(name):
        for (start, length, what, _), (following, *_) in zip(rows, rows[1:]):
            assert start + length == following, what
            assert what.startswith("**") or length == listed[what], what
        breaks = [0, *(i for i, (_, _, what, _) in enumerate(rows) if re.search(r"\*\*(Break|Lunch|Pause)", what))]
        sittings = [rows[j][0] - rows[i][0] - rows[i][1] for i, j in zip(breaks, [*breaks[1:], len(rows) - 1])]
        assert max(sittings) <= SITTING and rows[-1][0] + rows[-1][1] - rows[0][0] <= DAY


def left_out(name: str) -> list[str]:
    """The core sections of the core notebooks that a schedule does not have."""
    taught = {what for rows in days(name) for _, _, what, _ in rows}
    core = [part.name for part in PARTS.values() if part.kind == "core" and part.name not in taught]
    return [each for each in core if not re.search(rf"(^|of )({'|'.join(map(re.escape, OPTIONAL))})(\.|$)", each)]


def test_two_days_teach_all_core_sections_and_as_many_exercises_as_they_say() -> None:
    exercises_taught = sum(what.startswith("Exercise ") for rows in days("two-days") for _, _, what, _ in rows)
    assert left_out("two-days") == [] and f"and {exercises_taught} of the exercises" in PAGES["two-days"]


def test_the_day_lists_what_it_leaves_for_reading() -> None:
    listed = re.findall(r"^\* (.+)$", PAGES["one-day"].split("## Left for reading")[1], re.M)
    assert listed == [each for each in left_out("one-day") if not re.match("(Opening|Summary) of", each)]


def cells_of_parts(stem: str) -> dict[str, list[str]]:
    """The code cells of each section, the opening and each exercise of a notebook."""
    notebook = nbformat.read(NOTEBOOKS[stem][0], as_version=4)
    found = {}
    for name, _, cells, _ in section_minutes.cut(notebook):
        if not name.startswith("Exercises of"):
            found[name] = [notebook.cells[cell].source for cell in cells]
            continue
        number = 0
        # Exercises that all stand in the sections leave no cell here.
        for cell in notebook.cells[cells[0] - 1 : cells[-1] + 1] if cells else []:
            if cell.cell_type == "markdown":
                number = int((re.findall(r"\*\*(\d+)\.", cell.source) or [number])[-1])
            else:
                found.setdefault(f"Exercise {section_minutes.label(notebook)}.{number}", []).append(cell.source)
    return found


def names(code: str) -> tuple[set[str], set[str]]:
    """The names that a cell needs from other cells, and those that it defines."""
    tree = ast.parse(re.sub(r"^(\s*)%.*$", r"\1pass", code, flags=re.M))
    loaded = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            stored.add(node.name or "")
        elif isinstance(node, ast.arg | ast.alias):
            stored.add(node.arg if isinstance(node, ast.arg) else (node.asname or node.name).split(".")[0])
    return loaded - stored - set(dir(builtins)), stored


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_cells_of_a_schedule_run_in_its_order(name: str) -> None:
    """Every cell finds the names that it uses, although sections are left out and exercises come early."""
    parts = {stem: cells_of_parts(stem) for stem in NOTEBOOKS}
    defined: dict[str, set[str]] = {stem: set() for stem in NOTEBOOKS}
    for _, _, what, do in (row for rows in days(name) for row in rows):
        stem = next((stem for stem in NOTEBOOKS if what in parts[stem]), None)
        if stem is None:
            continue
        order = list(parts[stem])
        before = order[: order.index(what)] if "run above" in do else []
        first = re.findall(r"the cells? of (exercise|section) (\d[ab]?\+?\.\d+)", do)
        wanted = tuple(f"Exercise {number} " if kind == "exercise" else f"{number} " for kind, number in first)
        before += [part for part in order if wanted and f"{part} ".startswith(wanted)]
        for code in [code for part in [*before, what] for code in parts[stem][part]]:
            needed, stored = names(code)
            assert needed <= defined[stem], (what, needed - defined[stem])
            defined[stem] |= stored


@pytest.mark.parametrize("stem", NOTEBOOKS)
def test_the_kit_has_a_right_solution_of_every_exercise(stem: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = NOTEBOOKS[stem][1]
    loaded = import_module(f"course_lib.exercises.{module}")
    labels = [name for name, part in PARTS.items() if part.kind == "exercise" and part in section_minutes.parts(stem)]
    for number, (name, exercise) in enumerate(zip(labels, exercises(module), strict=True), 1):
        sections = re.split(r"^### ", PAGES["solutions"], flags=re.M)
        (section,) = [part for part in sections if part.startswith(f"{name}\n")]
        if callable(exercise.solution):
            assert f":pyobject: {exercise.solution.__name__}\n" in section
            loaded.check(number, exercise.solution)
            assert capsys.readouterr().out.endswith(": right.\n")


def test_the_quiz_answers_are_what_its_code_prints(capsys: pytest.CaptureFixture[str]) -> None:
    questions, answers = PAGES["quiz"].split("## Answers")
    asked = dict(re.findall(r"^\*\*(\d+)\.\*\* ((?:.|\n)+?)(?=^\*\*\d|^---)", questions, re.M))
    rows = {row[0]: row[1] for row in re.findall(r"^\| (\d+) \| (.+?) \| .+ \|$", answers, re.M)}
    assert list(asked) == list(rows)
    for number, question in asked.items():
        for code in re.findall(r"```python\n(.+?)```", question, re.S):
            exec(code, {})
            assert f"`{capsys.readouterr().out.strip()}`" in rows[number]


def shown(number: str) -> str:
    """The text, the code and the outputs of the section with this number, tags left out."""
    for path, _ in NOTEBOOKS.values():
        notebook = nbformat.read(path, as_version=4)
        for name, _, cells, text in section_minutes.cut(notebook):
            if name.startswith(f"{number} "):
                outputs = [output for cell in cells for output in notebook.cells[cell].outputs]
                found = [each.get("text") or "".join(map(str, each.get("data", {}).values())) for each in outputs]
                return "\n".join([text, *(notebook.cells[cell].source for cell in cells), *found])
    raise KeyError(number)


def test_the_key_of_the_closing_quiz_is_printed_in_the_notebooks() -> None:
    questions, key = PAGES["quiz"].split("## After the last day")[1].split("### Key")
    rows = re.findall(r"^\| ([a-z]) \| (.+) \| (\S+) \|$", key, re.M)
    assert sorted({letter for letter, *_ in rows}) == re.findall(r"^\*\*([a-z])\.\*\*", questions, re.M)
    missing = [(said, number) for _, answer, number in rows for said in re.findall("`(.+?)`", answer)
               if said not in shown(number)]  # fmt: skip
    assert missing == []
