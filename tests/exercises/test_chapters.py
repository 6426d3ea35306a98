"""For every exercise: the solution and other right answers are accepted, and wrong ones are rejected with a message of their own."""

import re
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from course_lib.exercises import (
    Chapter,
    by_hand,
    corpus,
    gptsan,
    japanese,
    llama,
    prefix,
    pretrain,
    rewards,
    serving,
    subword,
)
from course_lib.prefix.data import Sample
from course_lib.prefix.samples import collate, rows
from course_lib.serving.text_stream import NewToken, Piece, TextStream

# a chapter's exercises, and right answers beside its solutions, and wrong ones
CHAPTERS: dict[str, tuple[Chapter, ModuleType]] = {
    module.__name__.rpartition(".")[2]: (
        module.CHAPTER,
        import_module(module.__name__.replace("course_lib.exercises", "tests.exercises.answers")),
    )
    for module in (corpus, japanese, subword, by_hand, llama, pretrain, gptsan, prefix, rewards, serving)
}
EXERCISES = [(name, i + 1) for name, (chapter, _) in CHAPTERS.items() for i in range(len(chapter.exercises))]


@pytest.fixture(autouse=True)
def quick_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the checks measure, without models and trainings."""
    for measured, quick in CHAPTERS["gptsan"][1].MEASURED.items():
        monkeypatch.setattr(gptsan, measured, quick)
    monkeypatch.setattr(by_hand, "_articles", lambda: (["abc" * 50], ["abc" * 2100]))
    monkeypatch.setattr(pretrain, "_bits", lambda text: CHAPTERS["pretrain"][1].COSTS[text[0]])
    monkeypatch.setattr(pretrain, "_training_text", lambda: "昼" * 100)
    monkeypatch.setattr(prefix, "_shares", CHAPTERS["prefix"][1].SHARES.__getitem__)
    monkeypatch.setattr(prefix, "_polite", lambda rows: CHAPTERS["prefix"][1].POLITE[rows[0][0]])


def said(chapter: Chapter, number: int, answer: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """The verdict, which is one line and the last one: an answer, or the building of a product, may print lines before it."""
    chapter.check(number, answer)
    return capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(("name", "number"), EXERCISES)
def test_right_answers_are_accepted(name: str, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    chapter, written = CHAPTERS[name]
    for answer in written.RIGHT.get(number, []):
        assert said(chapter, number, answer, capsys) == f"Exercise {number}: right."
    assert "waits for your answer" in said(chapter, number, ..., capsys)


@pytest.mark.parametrize(("name", "number"), EXERCISES)
def test_each_mistake_has_a_message_of_its_own(name: str, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    chapter, written = CHAPTERS[name]
    wrong = written.WRONG[number]
    assert len({words for _, words in wrong}) >= 2
    for answer, words in wrong:
        message = said(chapter, number, answer, capsys)
        assert message.startswith(f"Exercise {number}: not yet.") and words in message
        assert not re.search(r"0x[0-9a-f]{6}", message), message


def test_usual_causes_are_named_only_where_no_mistake_is_recognized(capsys: pytest.CaptureFixture[str]) -> None:
    chapter, written = CHAPTERS["by_hand"]
    wrong = {words: said(chapter, 6, answer, capsys) for answer, words in written.WRONG[6]}
    assert [words for words, message in wrong.items() if "Usual causes" in message] == ["t does not grow"]
    assert wrong["are not decayed"] == "Exercise 6: not yet. biases and norms, all with one axis, are not decayed."


@pytest.mark.parametrize(("name", "number"), EXERCISES)
def test_the_printed_solution_runs_in_the_notebook(name: str, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    chapter = CHAPTERS[name][0]
    chapter.solution(number)
    printed = capsys.readouterr().out
    # what the notebooks define before their exercises
    names: dict[str, Any] = {"re": re, **CHAPTERS[name][1].NAMES}
    if defined := re.search(r"^(?:def|class) (\w+)", printed, re.M):
        exec(printed, names)
        answer = names[defined[1]]
    else:
        answer = eval(printed, names)
    assert said(chapter, number, answer, capsys) == f"Exercise {number}: right."


def test_the_answers_of_chapter_six_are_those_of_the_library() -> None:
    for prompt, target in (([5, 6, 7], [8, 9]), ([5], [8])):
        batch = collate(rows([Sample(prompt, target, 1)], None, True, 2))
        assert CHAPTERS["prefix"][1].COURSE["example"](prompt, target, 2) == (
            batch["input_ids"][0].tolist(),
            batch["labels"][0].tolist(),
        )


def streamed(tokens: list[bytes], stop: str) -> list[str]:
    """What the server sends after each token."""

    def decode(ids: list[int]) -> str:
        return b"".join(tokens[index] for index in ids).decode("utf8", "ignore")

    told: list[Piece] = []
    stream, sent = TextStream(decode, [], [stop], told.append), []
    for number in range(len(tokens)):
        before, ended = len(told), stream.add(NewToken(number), number == len(tokens) - 1)
        sent.append("".join(piece.text for piece in told[before:]))
        if ended:
            break
    return sent


@pytest.mark.parametrize("stop", ["終わり", "終点", "雪", "降る", "る。", "無い"])
def test_the_pieces_of_chapter_seven_are_those_of_the_server(stop: str) -> None:
    parts = [part.encode() for part in ("雪が", "降", "る。", "終", "点で終わ", "りと", "言った。")]
    single = [bytes([byte]) for byte in b"".join(parts)]
    by_four = [b"".join(single[at : at + 4]) for at in range(0, len(single), 4)]
    for tokens in (parts, single, by_four):
        assert CHAPTERS["serving"][1].pieces(tokens, stop) == streamed(tokens, stop)


def test_the_steps_of_chapter_seven_are_those_of_its_simulation() -> None:
    lengths = [5, 1, 9, 2, 2, 7, 3, 3, 8, 1]
    running: list[tuple[int, int]]
    for slots in (1, 2, 3, 20):
        waiting, running, clock = list(enumerate(lengths)), [], 0
        while waiting or running:
            waiting, running, _ = CHAPTERS["serving"][1].step(waiting, running, slots)
            clock += 1
        assert serving.steps(lengths, slots, continuous=True) == clock
    assert serving.steps(lengths, 4, continuous=False) == 9 + 7 + 8
