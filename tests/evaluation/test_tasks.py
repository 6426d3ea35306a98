"""`course evaluate --tasks`: the example of the docs, and the Japanese leaderboard's own files on data of ours."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from course_lib import cli
from course_lib.command_line.evaluate import open_model
from course_lib.errors import CourseError, UsageError
from course_lib.evaluation import pairs
from course_lib.evaluation.pairs import Pair

from tests.evaluation.test_command import PAIRS
from tests.pretrain import models
from tests.pretrain.models import OTHER, SENTENCE

lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'japanese-lm-course[evaluate]'")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 that knows one sentence by heart."""
    return models.memorized(tmp_path_factory.mktemp("memorized"))


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert cli._main(["evaluate", *arguments, "--json"]) == 0
    text = capsys.readouterr().out
    found: dict[str, Any] = json.loads(text[text.index("{") :])  # products may be built before it
    return found


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf8")
    return path


def test_the_example_of_the_docs_is_the_accuracy_of_the_pairs(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs/evaluation.md").read_text(encoding="utf8")
    rows = [*PAIRS, {"phenomenon": "known", "good": SENTENCE, "bad": OTHER}]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "minimal_pairs.jsonl", rows)
    (tmp_path / "tasks").mkdir()
    task = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert task
    (tmp_path / "tasks" / "course_pairs.yaml").write_text(task[1], encoding="utf8")
    right = pairs.judge(open_model(model), [Pair(**row) for row in rows])
    found = evaluate(capsys, str(model), "--tasks", "tasks/course_pairs.yaml", "--minimal-pairs", "data/minimal_pairs.jsonl")  # fmt: skip
    (score,) = found["models"][0]["tasks"]
    assert (score["task"], score["metric"], score["examples"]) == ("course_pairs", "acc", len(rows))
    assert score["value"] == sum(right) / len(right) and 0 < score["stderr"] < 1
    assert found["models"][1]["tasks"] is None  # the trigram model
    assert cli._main(["evaluate", str(model), "--tasks", "tasks/course_pairs.yaml", "--limit", "2"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("course_pairs"))
    assert line.split()[1:4] == ["acc", "0", "2"]


def leaderboard(folder: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    """The harness's own file of a task of the leaderboard, with rows of ours in place of its data on the Hub."""
    source = Path(lm_eval.__file__).parent / "tasks" / "japanese_leaderboard" / f"ja_leaderboard_{name}.yaml"
    text = re.sub(r"^dataset_\w+:.*\n", "", source.read_text(encoding="utf8"), flags=re.M)
    data = write(folder / f"{name}.jsonl", rows)
    files = {"train": str(data), "validation": str(data)}
    dataset = {"dataset_path": "json", "dataset_kwargs": {"data_files": files}}
    target = folder / f"{name}.yaml"
    target.write_text(text.replace(f"ja_leaderboard_{name}", f"own_{name}") + yaml.safe_dump(dataset), encoding="utf8")
    return target


def test_tasks_of_the_leaderboard_that_choose_and_that_write(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nli = [{"sentence1": "雨が降る。", "sentence2": word, "label": at % 3} for at, word in enumerate("あいうえお")]
    quiz = [{"ctxs": {"text": ["空は青い。"]}, "question": "何色？", "answers": {"text": ["青"]}} for _ in range(3)]
    tasks = [leaderboard(tmp_path, "jnli", nli), leaderboard(tmp_path, "jaqket_v2", quiz)]
    found = evaluate(capsys, str(model), *(part for task in tasks for part in ("--tasks", str(task))))
    scores = {(score["task"], score["metric"]): score for score in found["models"][0]["tasks"]}
    assert set(scores) == {("own_jnli", "acc"), ("own_jaqket_v2", "exact_match (whitespaces)")}
    assert {task: score["shots"] for (task, _), score in scores.items()} == {"own_jnli": 3, "own_jaqket_v2": 1}
    assert all(0 <= score["value"] <= 1 for score in scores.values())


def test_exact_match_counts_the_texts_that_the_model_writes(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, rest = SENTENCE[:5], SENTENCE[5:]
    data = write(tmp_path / "data.jsonl", [{"begin": begin, "rest": each} for each in (rest, OTHER, rest, rest)])
    task = {
        "task": "continue", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test", "output_type": "generate_until", "doc_to_text": "{{begin}}", "doc_to_target": "{{rest}}",
        "metric_list": [{"metric": "exact_match"}],
    }  # fmt: skip
    (tmp_path / "continue.yaml").write_text(yaml.safe_dump(task), encoding="utf8")
    (score,) = evaluate(capsys, str(model), "--tasks", str(tmp_path / "continue.yaml"))["models"][0]["tasks"]
    assert (score["metric"], score["examples"], score["value"]) == ("exact_match", 4, 0.75)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # lm-evaluation-harness reads all its tasks first
        pytest.param("japanese_leaderbord", "near it: .*japanese_leaderboard", marks=pytest.mark.rehearse),
        ("none.yaml", "No such file"),
        ("empty.yaml", "names no task"),
        ("broken.yaml", "broken.yaml: "),
    ],
)
def test_a_wrong_task_is_named(text: str, said: str, tmp_path: Path) -> None:
    from course_lib.evaluation.tasks import Tasks

    (tmp_path / "empty.yaml").touch()
    (tmp_path / "broken.yaml").write_text("task: [", encoding="utf8")
    with pytest.raises(UsageError, match=f"^--tasks: .*{said}"):
        Tasks.load([str(tmp_path / text) if text.endswith(".yaml") else text])


def test_data_that_is_not_there_is_reported_before_a_model_is_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from course_lib.evaluation.tasks import Tasks

    task = leaderboard(tmp_path, "jnli", [])
    (tmp_path / "jnli.jsonl").unlink()
    with pytest.raises(CourseError, match="^--tasks: the data of own_jnli cannot be loaded"):
        Tasks.load([str(task)])
    assert cli._main(["evaluate", str(tmp_path / "no-model"), "--tasks", str(task)]) == 1
    assert "own_jnli" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--limit", "3"], ["--tasks", "x.yaml", "--limit", "0"]])
def test_a_limit_needs_tasks_and_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._main(["evaluate", "model", "--minimal-pairs", "grammar", *arguments]) == 2
    assert "--limit" in capsys.readouterr().err


def counting(path: Path, name: str, rows: int) -> Path:
    """A task with this name in its file, on a number of examples."""
    data = write(path.with_suffix(".jsonl"), [{"begin": SENTENCE[:5], "rest": SENTENCE[5:]}] * rows)
    task = {
        "task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test", "output_type": "loglikelihood", "doc_to_text": "{{begin}}", "doc_to_target": "{{rest}}",
        "metric_list": [{"metric": "acc"}],
    }  # fmt: skip
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(task), encoding="utf8")
    return path


@pytest.mark.parametrize("file", ["b.yaml", "inner/c.yaml", "d.yml"])
def test_the_named_file_is_measured_and_no_neighbour(file: str, tmp_path: Path) -> None:
    from course_lib.evaluation.tasks import Tasks

    for number, each in enumerate(("a.yaml", "b.yaml", "inner/c.yaml", "d.yml"), start=1):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        counting(tmp_path / each, "pairs", number)
    tasks = Tasks.load([str(tmp_path / file)])
    wanted = {"b.yaml": 2, "inner/c.yaml": 3, "d.yml": 4}[file]
    assert tasks.names == ("pairs",)
    assert len(list(tasks.manager.load(["pairs"])["tasks"]["pairs"].test_docs())) == wanted


def test_two_files_with_one_name_are_refused(tmp_path: Path) -> None:
    from course_lib.evaluation.tasks import Tasks

    first, second = counting(tmp_path / "a.yaml", "pairs", 1), counting(tmp_path / "b.yaml", "pairs", 2)
    with pytest.raises(UsageError, match="^--tasks: pairs is the name of several tasks; allowed: each name once$"):
        Tasks.load([str(first), str(second)])
    assert Tasks.load([str(first), str(first)]).names == ("pairs",)
    both = Tasks.load([str(first), str(counting(tmp_path / "c.yaml", "others", 3))])
    assert both.names == ("pairs", "others")


def test_an_include_that_is_missing_is_one_line(tmp_path: Path) -> None:
    from course_lib.evaluation.tasks import Tasks

    (tmp_path / "a.yaml").write_text("task: t\ninclude: none.yaml\n", encoding="utf8")
    with pytest.raises(CourseError, match=r"^--tasks: .*a.yaml: .*none.yaml") as error:
        Tasks.load([str(tmp_path / "a.yaml")])
    assert "\n" not in str(error.value)


def test_a_task_whose_data_is_loaded_by_a_script_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scripted").mkdir()
    (tmp_path / "scripted" / "scripted.py").write_text("import datasets\n", encoding="utf8")
    task = {
        "task": "own", "dataset_path": str(tmp_path / "scripted"), "test_split": "test", "output_type": "loglikelihood",
        "doc_to_text": "{{begin}}", "doc_to_target": "{{rest}}", "metric_list": [{"metric": "acc"}],
    }  # fmt: skip
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(task), encoding="utf8")
    assert cli._main(["evaluate", str(tmp_path / "no-model"), "--tasks", str(tmp_path / "own.yaml")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--tasks: own: the data is loaded by a script, which datasets no longer runs; allowed: " in line
    assert "belebele_jpn_Jpan" in line and "docs/evaluation.md" in line


def test_the_task_of_the_docs_on_files_of_jglue_is_that_of_the_leaderboard(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs/evaluation.md").read_text(encoding="utf8")
    _, task = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    choices = {f"choice{number}": word for number, word in enumerate("春夏秋冬朝")}
    rows = [
        {"q_id": at, "question": f"{word}？", "label": at % 5} | choices for at, word in enumerate("あいうえおかき")
    ]
    monkeypatch.chdir(tmp_path)
    Path("JGLUE/datasets/jcommonsenseqa-v1.1").mkdir(parents=True)
    for part in ("train", "valid"):
        write(Path(f"JGLUE/datasets/jcommonsenseqa-v1.1/{part}-v1.1.json"), rows)
    Path("docs.yaml").write_text(task, encoding="utf8")
    source = Path(lm_eval.__file__).parent / "tasks" / "japanese_leaderboard" / "ja_leaderboard_jcommonsenseqa.py"
    Path("own_jcommonsenseqa.py").write_text(source.read_text(encoding="utf8"), encoding="utf8")
    own = leaderboard(Path(), "jcommonsenseqa", rows)
    found = evaluate(capsys, str(model), "--tasks", "docs.yaml", "--tasks", str(own))["models"][0]["tasks"]
    assert [score["task"] for score in found] == ["jcommonsenseqa", "own_jcommonsenseqa"]
    assert {(score["metric"], score["shots"], score["examples"], score["value"]) for score in found} == {
        ("acc", 3, len(rows), found[0]["value"])
    }


@pytest.mark.rehearse  # lm-evaluation-harness reads all its tasks first
def test_a_group_says_which_of_its_tasks_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    from course_lib.evaluation.tasks import Tasks

    def load_dataset(path: str, *_: Any, **__: Any) -> None:
        if path in ("Rakuten/JGLUE", "kumapo/JAQKET"):
            raise RuntimeError(f"Dataset scripts are no longer supported, but found {Path(path).name}.py")
        raise ConnectionError(f"Couldn't reach {path!r} on the Hub")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    refused = [f"ja_leaderboard_{name}" for name in ("jaqket_v2", "jcommonsenseqa", "jnli", "jsquad", "marc_ja")]
    rest = [f"ja_leaderboard_{name}" for name in ("mgsm", "xlsum", "xwinograd")]
    with pytest.raises(UsageError) as error:
        Tasks.load(["japanese_leaderboard"])
    assert str(error.value).startswith(f"--tasks: {', '.join(refused)}: ")
    assert " ".join(f"--tasks {name}" for name in rest) in str(error.value)


def test_the_tasks_of_the_docs_are_those_of_the_harness() -> None:
    from course_lib.evaluation.tasks import WITHOUT_SCRIPT

    page = (Path(__file__).parents[2] / "docs/evaluation.md").read_text(encoding="utf8")
    named = re.findall(r"^\| (\w+) \| [\w./-]+ \| (?:chooses|writes)", page, re.MULTILINE)
    files = {path.stem.lstrip("_"): path for path in (Path(lm_eval.__file__).parent / "tasks").rglob("*.yaml")}
    assert {*WITHOUT_SCRIPT} < {*named} and len(named) > 8
    for name in named:
        assert re.search(rf"^(task|group): {name}$", files[name].read_text(encoding="utf8"), re.MULTILINE), name
