"""What contributors read is true: one story of versions and addresses; files, verbs and examples that exist."""

import re
import tomllib
from textwrap import dedent
from typing import Any

import pytest
import yaml
from course_lib import __version__
from course_lib.command_line import verbs
from course_lib.exercises import Exercise, run_cases
from course_lib.paths import REPOSITORY

GUIDES = ("AGENTS.md", "CONTRIBUTING.md")
# the files that CONTRIBUTING.md's examples make
EXAMPLES = {
    "course_lib/japanese/characters.py",
    "tests/japanese/test_characters.py",
    "course_lib/configs/gpt2-mini.yaml",
}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf8"))["project"]


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf8")


def plain_name(requirement: str) -> str:
    return re.split(r"[\[<>=]", requirement)[0].lower().replace("_", "-")


def test_all_that_is_installed_is_pinned() -> None:
    pinned = [plain_name(line) for line in read("requirements.txt").splitlines() if "==" in line and line[0] != "#"]
    assert len(pinned) == len(set(pinned))
    extras = {name: asked for name, asked in PROJECT["optional-dependencies"].items() if name != "tracking"}
    for asked in (PROJECT["dependencies"], *extras.values()):
        assert {plain_name(each) for each in asked} <= set(pinned)


def test_the_workflow_tests_the_versions_of_the_classifiers() -> None:
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    jobs = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]
    assert jobs["check"]["strategy"]["matrix"]["python"] == classified
    assert PROJECT["requires-python"] == f">={classified[0]}"


@pytest.mark.parametrize("name", ["CITATION.cff", "CHANGELOG.md", ".github/ISSUE_TEMPLATE/config.yml"])
def test_the_address_is_that_of_pyproject(name: str) -> None:
    found = re.findall(r"https://github\.com/[\w.-]+/[\w.-]+", read(name))
    assert found and set(found) == {PROJECT["urls"]["Repository"]}


def test_the_citation_names_this_version_and_licence() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert (citation["version"], citation["license"]) == (__version__, PROJECT["license"])


@pytest.mark.parametrize("name", GUIDES)
def test_named_files_exist(name: str) -> None:
    named = set(re.findall(r"\b(?:course_lib|tests|data|notebooks)/[\w/.-]*\w", read(name)))
    links = set(re.findall(r"\]\(((?!https:)[^)]+)\)", read(name)))
    assert len(named) >= 4 and links
    assert not [path for path in (named | links) - EXAMPLES if not (REPOSITORY / path).exists()]


@pytest.mark.parametrize("name", [*GUIDES, "SECURITY.md", ".github/ISSUE_TEMPLATE/bug.yml"])
def test_named_verbs_exist(name: str) -> None:
    named = set(re.findall(r"(?:`|^ {4})course ([a-z][a-z0-9]*)", read(name), re.MULTILINE))
    known = set(verbs.app.commands)
    assert named and named <= known


def test_the_example_of_an_exercise_works() -> None:
    section = read("CONTRIBUTING.md").split("## An exercise")[1]
    block = re.search(r" +```python\n(.*?)```", section, re.DOTALL)
    assert block
    names: dict[str, Any] = {"Exercise": Exercise}
    exec(dedent(block[1]).replace("\nExercise(", "\nexercise = Exercise("), names)
    assert run_cases(names["exercise"].solution, names["exercise"].check) is None
    assert "の is hiragana" in str(run_cases(len, names["exercise"].check))
