"""The instructor's kit in docs/instructor: its schedules, minutes, solutions, quiz, errors and links."""

import ast
import builtins
import json
import math
import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import nbformat
import pytest
from course_lib import paths
from course_lib.errors import UsageError
from course_lib.exercises import japanese, pretrain
from course_lib.japanese import lattice, normalize
from course_lib.pretrain.config import PretrainConfig
from course_lib.serving import server
from course_lib.settings import config
from course_lib.training import planner

from tests.bench import section_minutes
from tests.bench.section_minutes import KIT, NOTEBOOKS, SECONDS, all_parts, digest, exercises, experiments

PAGES = {path.stem: path.read_text(encoding="utf8") for path in sorted(KIT.glob("*.md"))}
PARTS = all_parts()
CORE = [
    name for name, part in PARTS.items() if part.kind == "core" and not name.startswith(("Opening of", "Summary of"))
]
EXERCISES = {
    f"Exercise {number}": (module, exercise)
    for stem, (_, module) in NOTEBOOKS.items()
    for number, exercise in zip(
        [name.split()[1] for name, part in PARTS.items() if part.kind == "exercise" and part in section_minutes.parts(stem)],
        exercises(module),
        strict=True,
    )
}  # fmt: skip
SCHEDULES = ("one-day", "two-days")
# Longest time without a break, and the longest day [minutes]
SITTING, DAY = 120, 510


def cells_of_parts(stem: str) -> dict[str, list[str]]:
    """The code cells of each section, the opening and each exercise of a notebook."""
    notebook = nbformat.read(NOTEBOOKS[stem][0], as_version=4)
    found = {}
    for name, _, cells, _ in section_minutes.cut(notebook):
        if not name.startswith("Exercises of"):
            found[name] = [notebook.cells[cell].source for cell in cells]
            continue
        number = 0
        for cell in notebook.cells[cells[0] - 1 : cells[-1] + 1]:
            if cell.cell_type == "markdown":
                number = int((re.findall(r"\*\*(\d)\.", cell.source) or [number])[-1])
            else:
                found.setdefault(f"Exercise {section_minutes.label(notebook)}.{number}", []).append(cell.source)
    return found


def names(code: str) -> tuple[set[str], set[str]]:
    """The names that a cell needs from other cells, and those that it defines."""
    tree = ast.parse(re.sub(r"^(\s*)%.*$", r"\1pass", code, flags=re.M))
    loaded = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            stored.add(node.name)
        elif isinstance(node, ast.arg):
            stored.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            stored.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            stored |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return loaded - stored - set(dir(builtins)), stored


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_cells_of_a_schedule_run_in_its_order(name: str) -> None:
    """Every cell finds the names that it uses, although sections are left out and exercises come early."""
    parts = {stem: cells_of_parts(stem) for stem in NOTEBOOKS}
    defined: dict[str, set[str]] = {stem: set() for stem in NOTEBOOKS}
    seen = 0
    for what, do in re.findall(r"^\| \d\d:\d\d \| \d+ \| ([^|]+?) \|(.*)\|$", PAGES[name], re.M):
        stem = next((stem for stem in NOTEBOOKS if what in parts[stem]), None)
        if stem is None:
            continue
        order = list(parts[stem])
        before = order[: order.index(what)] if "run above" in do else []
        first = re.findall(r"the cells? of (exercise|section) (\d[ab]?\.\d+)", do)
        before += [
            part
            for kind, number in first
            for part in order
            if f"{part} ".startswith((f"Exercise {number} ",) if kind == "exercise" else (f"{number} ",))
        ]
        for part in [*before, what]:
            for code in parts[stem][part]:
                needed, stored = names(code)
                assert needed <= defined[stem], (what, part, needed - defined[stem])
                defined[stem] |= stored
                seen += 1
    assert seen > 150


def days(name: str) -> list[list[tuple[int, int, str]]]:
    """The days of a schedule: rows of start [minutes after midnight], length [minutes], and what."""
    found: list[list[tuple[int, int, str]]] = []
    for table in re.split(r"^\| time .*\n.*\n", PAGES[name], flags=re.M)[1:]:
        rows = re.findall(r"^\| (\d\d):(\d\d) \| (\d+) \| ([^|]+?) \|", table, re.M)
        found.append([(int(hours) * 60 + int(minutes), int(length), what) for hours, minutes, length, what in rows])
    return found


def listed_minutes() -> dict[str, int]:
    """The minutes of each part in the tables of sections.md."""
    rows = re.findall(r"^\| ([^|]+?) \| (\w+) \| \d* \| \d* \| \d+ \| (\d+) \|", PAGES["sections"], re.M)
    assert len({name for name, _, _ in rows}) == len(rows)
    assert {name: kind for name, kind, _ in rows} == {name: part.kind for name, part in PARTS.items()}
    return {name: int(minutes) for name, _, minutes in rows}


def test_the_minutes_of_all_parts_follow_from_the_rule() -> None:
    """A minute more or less is allowed, so that a word changed in a notebook breaks nothing."""
    listed = listed_minutes()
    assert list(listed) == list(PARTS)
    wrong = {name: (listed[name], part.exact) for name, part in PARTS.items() if abs(listed[name] - part.minutes) > 1}
    assert wrong == {}, "run `python -m tests.bench.section_minutes write`"


def test_the_rule_by_hand() -> None:
    part = section_minutes.Part("x", "core", words=260, lines=12, predictions=1, seconds=30.0)
    assert part.exact == 2 + 2 + 2 + 0.5 and part.minutes == 7
    assert section_minutes.Part("x", "exercise", lines=4).minutes == 7
    assert section_minutes.Part("x", "exercise", seconds=90).minutes == 10
    assert section_minutes.spoken("A [link text](https://x.y/z), 東京 and `code` | — | 12\n**Sources.** none") == 7


def test_seconds_are_measured_for_each_part_with_code() -> None:
    measured = json.loads(SECONDS.read_text(encoding="utf8"))["seconds"]
    missing = [name for name, part in PARTS.items() if part.kind != "exercise" and part.lines and name not in measured]
    assert missing == [] and sum(measured.values()) > 60


@pytest.mark.parametrize("name", SCHEDULES)
def test_times_are_continuous_and_minutes_those_of_the_sections(name: str) -> None:
    listed = listed_minutes()
    for rows in days(name):
        assert len(rows) > 30
        for (start, length, what), (following, _, _) in zip(rows, rows[1:]):
            assert start + length == following, what
        for _, length, what in rows:
            assert what.startswith("**") or length == listed[what], what
        breaks = [0, *(i for i, (_, _, what) in enumerate(rows) if re.search(r"\*\*(Break|Lunch|Pause)", what))]
        sittings = [rows[j][0] - rows[i][0] - rows[i][1] for i, j in zip(breaks, [*breaks[1:], len(rows) - 1])]
        assert max(sittings) <= SITTING and rows[-1][0] + rows[-1][1] - rows[0][0] <= DAY
        assert sum(what == "**Lunch**" and length == 60 and 690 <= start <= 780 for start, length, what in rows) == 1


def test_two_days_teach_every_core_section_and_exercise_once_in_order() -> None:
    taught = [what for rows in days("two-days") for _, _, what in rows if not what.startswith("**")]
    assert [name for name in taught if name in CORE] == CORE
    assert sorted(name for name in taught if name.startswith("Exercise")) == sorted(EXERCISES)
    assert len(set(taught)) == len(taught)
    frames = [name for name in PARTS if name.startswith(("Opening of", "Summary of"))]
    assert [name for name in taught if name in frames] == frames


def test_one_day_names_every_core_section_once() -> None:
    taught = [what for rows in days("one-day") for _, _, what in rows if not what.startswith("**")]
    left = re.findall(r"^\* (.+)$", PAGES["one-day"].split("## Left for reading")[1], re.M)
    assert sorted(
        [*(name for name in taught if not name.startswith(("Opening", "Summary", "Exercise"))), *left]
    ) == sorted(CORE)
    assert [name for name in PARTS if name in taught and name in CORE] == [name for name in taught if name in CORE]


def test_an_exercise_comes_after_the_opening_of_its_chapter_and_before_its_summary() -> None:
    for name in SCHEDULES:
        order = [what for rows in days(name) for _, _, what in rows]
        for what in order:
            if what in EXERCISES:
                chapter = what.split()[1].split(".")[0]
                assert order.index(f"Opening of {chapter}") < order.index(what) < order.index(f"Summary of {chapter}")


@pytest.mark.parametrize("name", EXERCISES)
def test_the_kit_has_a_right_solution_of_every_exercise(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    sections = re.split(r"^### ", PAGES["solutions"], flags=re.M)
    (section,) = [each for each in sections if each.split("\n")[0] == name]
    assert "**Ask:**" in section
    module, exercise = EXERCISES[name]
    if callable(exercise.solution):
        path, function = re.findall(r"```\{literalinclude\} (\S+)\n:pyobject: (\w+)\n```", section)[0]
        assert (KIT / path).resolve() == paths.REPOSITORY / f"course_lib/exercises/{module}.py"
        loaded = import_module(f"course_lib.exercises.{module}")
        assert getattr(loaded, function) is exercise.solution
        loaded.check(int(name.split(".")[1]), getattr(loaded, function))
        assert capsys.readouterr().out.endswith(": right.\n")
    else:
        run = json.loads(SECONDS.read_text(encoding="utf8"))["experiments"][name]
        verdict = f"Exercise {name.split('.')[1]}: right."
        assert run == {"code": digest(experiments()[name]), "verdict": verdict}, "run `… section_minutes measure`"


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("Exercise 2.1", {"exercises": japanese, "normalize": normalize}),
        ("Exercise 2.2", {"exercises": japanese, "lattice": lattice}),
        ("Exercise 4b.1", {"exercises": pretrain, "planner": planner, "config": config, "PretrainConfig": PretrainConfig}),
    ],
)  # fmt: skip
def test_a_quick_experiment_runs(name: str, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(experiments()[name], names)
    assert capsys.readouterr().out.endswith(": right.\n")


def test_the_quiz_has_ten_questions_and_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    questions, answers = PAGES["quiz"].split("## Answers")
    asked = dict(re.findall(r"^\*\*(\d+)\.\*\* ((?:.|\n)+?)(?=^\*\*\d|^---)", questions, re.M))
    rows = {row[0]: row[1:] for row in re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", answers, re.M)}
    assert list(asked) == list(rows) == [str(number) for number in range(1, 11)]
    ran = 0
    for number, question in asked.items():
        for code in re.findall(r"```python\n(.+?)```", question, re.S):
            exec(code, {})
            assert f"`{capsys.readouterr().out.strip()}`" in rows[number][0]
            ran += 1
    assert ran == 3
    assert rows["4"][0] == ", ".join(str(len(char.encode())) for char in "Aあ😀")
    assert rows["7"][0].startswith(f"ln 6000 = {math.log(6000):.1f} nats")
    assert rows["9"][0].startswith(f"{1.5e9 * 2 / 1e9:.0f} GB")


def test_five_questions_with_answers_for_each_notebook() -> None:
    chapters = re.split(r"^## ", PAGES["discussion"], flags=re.M)[1:]
    assert len(chapters) == len(NOTEBOOKS)
    for chapter in chapters:
        entries = re.split(r"^\*\*(\d)\. (.+\?.*|.+:.*)\*\*$", chapter, flags=re.M)[1:]
        assert entries[::3] == list("12345"), chapter[:40]
        assert all(len(answer.split()) >= 25 for answer in entries[2::3])
    for name in SCHEDULES:
        found = re.findall(r"\[(chapter \d[^\]]*)\]\(discussion.md\), question (\d)", PAGES[name])
        titles = [chapter.split(" ·")[0].lower() for chapter in chapters]
        assert found and all(title in titles and number in "12345" for title, number in found)


@pytest.mark.parametrize("name", PAGES)
def test_sections_that_are_named_exist(name: str) -> None:
    numbers = {part.split()[0] for part in PARTS} | {part.split()[1] for part in EXERCISES}
    text = re.sub(r"```.*?```", "", PAGES[name], flags=re.S)
    named = re.findall(r"\((\d[ab]?\.\d+)(?:, [^)]*)?\)", text)
    named += re.findall(r"\b(?:[Ss]ection|[Ee]xercises?) (\d[ab]?\.\d+)", text)
    assert [number for number in named if number not in numbers] == []


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", PAGES[name]):
        file, _, anchor = target.partition("#")
        path = KIT / file if file else KIT / f"{name}.md"
        assert path.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf8"), re.M)
            assert anchor in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], target


def test_the_index_names_every_page() -> None:
    assert set(re.findall(r"\]\(([\w-]+)\.md\)", PAGES["index"])) == PAGES.keys() - {"index"}


def test_the_minutes_of_the_capstone_add_up() -> None:
    steps = {
        int(n): int(minutes) for n, minutes in re.findall(r"^\*\*(\d)\. .+?\((\d+) minutes", PAGES["capstone"], re.M)
    }
    assert list(steps) == list(range(9)) and sum(steps.values()) == 6 * 60
    assert sum(steps.values()) - steps[6] - steps[7] == 4.5 * 60
    lines = re.findall(r"^\| \*\*\w[^|]*\*\*[^|]*\|(.+)\|$", PAGES["capstone"].split("## Rubric")[1], re.M)
    assert (
        len(lines) == 7
        and all(len(line.split("|")) == 4 for line in lines)
        and f"(of {3 * len(lines)})" in PAGES["capstone"]
    )


def test_nothing_is_left_open() -> None:
    assert [name for name, page in PAGES.items() if "@@" in page] == []


def test_errors_are_numbered_and_complete() -> None:
    entries = re.split(r"^## (\d+)\. ", PAGES["errors"], flags=re.M)
    assert entries[1::2] == [str(number) for number in range(1, len(entries) // 2 + 1)] and len(entries) > 20
    for entry in entries[2::2]:
        assert all(f"**{part}**" in entry for part in ("The learner sees", "What happened", "Say")), entry[:60]
    for name, page in PAGES.items():
        assert all(1 <= int(number) < len(entries) // 2 + 1 for number in re.findall(r"\[error (\d+)\]", page)), name


def shown(number: int) -> str:
    """The text of an error in errors.md."""
    return re.split(r"^## \d+\. ", PAGES["errors"], flags=re.M)[number]


def test_a_wrong_profile_is_reported_as_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_PROFILE", "tinny")
    with pytest.raises(UsageError) as error:
        config.sections()
    assert f"course: {error.value}\n" in shown(7)


def test_a_port_in_use_is_reported_as_printed() -> None:
    import socket

    from course_lib.errors import CourseError

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CourseError) as error:
            server._place("127.0.0.1", port)
    assert f"course: {error.value}\n".replace(str(port), "8000") in shown(10)


def test_a_called_function_is_reported_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from course_lib.exercises import corpus

    corpus.check(1, "本文です。")
    assert capsys.readouterr().out in shown(11)


def test_a_missing_compiler_is_reported_as_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from course_lib.errors import CourseError
    from course_lib.pretrain.gpt2 import Gpt2
    from course_lib.training import launch

    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    settings = config.load(PretrainConfig, "gpt2-tiny.yaml", [f"engine.output_dir={tmp_path / 'run'}"])
    with pytest.raises(CourseError) as error:
        launch.train(Gpt2(settings))
    assert f"course: {error.value}\n" in shown(9)
