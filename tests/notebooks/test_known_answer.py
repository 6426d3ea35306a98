"""The model that the notebooks train comes close to the entropy of its source: a training that is silently wrong does not."""

from pathlib import Path

import pytest
from course_lib.pretrain import products

from tests.bench.known_answer import ALLOWED, measure


@pytest.mark.timeout(1500)
def test_gpt2_comes_close_to_the_source(shared_workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_WORKSPACE", str(shared_workspace))
    found = measure(products.GPT2.path() / "model", samples=64)
    assert found["source"] < found["model"] < found["source"] + ALLOWED
    assert found["trigram"] > found["model"] + 0.5
    assert found["written"]["sentences of the world"] > 0.9
    assert found["written"]["copied"] == 0
