"""The adapter, with the real lm-evaluation-harness: the same accuracy as ours on the same pairs.

lm_eval is in the extra `evaluate`; the tests are skipped where it is not installed.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from course_lib.command_line.evaluate import open_model
from course_lib.evaluation.pairs import Pair

from tests.evaluation.test_command import PAIRS
from tests.pretrain import models
from tests.pretrain.models import OTHER, SENTENCE

lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'japanese-lm-course[evaluate]'")

ROLLING = {
    "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{good}}", "metric_list": [{"metric": "bits_per_byte"}],
}  # fmt: skip
GENERATE = {
    "output_type": "generate_until", "doc_to_text": "{{start}}", "doc_to_target": "{{rest}}", "generation_kwargs": {"until": ["。"], "max_gen_toks": 30},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 that knows one sentence by heart."""
    return models.memorized(tmp_path_factory.mktemp("memorized"))


@pytest.fixture(scope="module")
def known() -> list[Pair]:
    changed = [SENTENCE.replace(*change) for change in (("で", "が"), ("を", "の"), ("い", "ろ"), ("大学", "学大"))]
    rows = [*PAIRS, *({"phenomenon": "known", "good": SENTENCE, "bad": bad} for bad in changed)]
    return [Pair(**row) for row in [*rows, {"phenomenon": "known", "good": OTHER, "bad": SENTENCE}]]


def run(tmp_path: Path, task: dict[str, Any], rows: list[dict[str, Any]], model: Any, **more: Any) -> dict[str, Any]:
    """Runs one task from its YAML with the real harness, without the internet."""
    from lm_eval.tasks import TaskManager

    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf8")
    source = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}, "test_split": "test"}
    (tmp_path / "task.yaml").write_text(json.dumps({"task": "ours"} | source | task), encoding="utf8")
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    found = lm_eval.simple_evaluate(model, tasks=["ours"], task_manager=manager, bootstrap_iters=0, **more)
    return dict(found["results"]["ours"])


def test_bits_per_byte_are_ours_without_the_end_token(tmp_path: Path, model: Path, known: list[Pair]) -> None:
    from course_lib.evaluation.harness import CourseLM
    from course_lib.evaluation.windows import score

    scorer = open_model(model)
    texts = [pair.good for pair in known]
    nats = -sum(each.total for each in score(scorer, [scorer.tokens(text, end=False) for text in texts]))
    found = run(tmp_path, ROLLING, [vars(pair) for pair in known], CourseLM(scorer))
    assert found["bits_per_byte,none"] == pytest.approx(nats / math.log(2) / sum(len(text.encode()) for text in texts))


def test_generation_stops_before_the_stop_text(tmp_path: Path, model: Path) -> None:
    from course_lib.evaluation.harness import CourseLM

    start, rest = SENTENCE[:5], SENTENCE[5:].rstrip("。")
    rows = [{"start": start, "rest": rest}, {"start": start, "rest": "違う"}]
    found = run(tmp_path, GENERATE, rows, CourseLM(open_model(model)))
    assert found["exact_match,none"] == 0.5


@pytest.mark.parametrize("cut", [1, 2, 9, len(SENTENCE) - 2])
def test_a_continuation_has_the_probability_that_it_adds(model: Path, cut: int) -> None:
    """Also where the cut is inside a word or a token."""
    from course_lib.evaluation.harness import CourseLM
    from lm_eval.api.instance import Instance

    lm = CourseLM(open_model(model))
    asked = [(SENTENCE[:cut], SENTENCE[cut:]), (SENTENCE[:cut], "犬"), ("", SENTENCE)]
    requests = [Instance("loglikelihood", {}, pair, 0) for pair in asked]
    known, other, whole = lm.loglikelihood(requests)
    (before,) = lm.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (SENTENCE[:cut],), 0)])
    assert known[0] == pytest.approx(whole[0] - before, abs=1e-3)
    assert whole[1] and known[1] and not other[1] and other[0] < known[0]
