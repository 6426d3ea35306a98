"""For every exercise: its solution is accepted, and plausible wrong answers are rejected with a message that helps."""

import re
from collections import Counter
from typing import Any

import pytest
from course_lib.exercises import Chapter, corpus, japanese, subword
from course_lib.japanese import normalize

CHAPTERS = {"corpus": corpus.CHAPTER, "japanese": japanese.CHAPTER, "subword": subword.CHAPTER}


def each(line: str) -> set[int]:
    return set(range(len(line.split(" "))))


def once(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """Applies each merge at the first place only."""
    symbols = list(word)
    for pair in merges:
        for at in range(len(symbols) - 1):
            if (symbols[at], symbols[at + 1]) == pair:
                symbols[at : at + 2] = ["".join(pair)]
                break
    return symbols


# (chapter, exercise) → wrong answers, each with words its message must hold
WRONG: dict[tuple[str, int], list[tuple[Any, str]]] = {
    ("corpus", 1): [
        (lambda t: re.sub(r"<ref>.*</ref>", "", t), "greedy"),
        (lambda t: re.sub(r"<ref[^>]*>.*?</ref>", "", t), "closes itself"),
        (lambda t: re.sub(r"<ref[^<>]*/>|<ref[^<>]*>.*?</ref>", "", t), "DOTALL"),
        (lambda t: re.sub(r"</?ref[^>]*>", "", t), "plain reference"),
        ("本文です。", "expected a function"),
    ],
    ("corpus", 2): [
        (lambda t: sum("ぁ" <= c <= "ヿ" for c in t) / max(1, len(t)), "katakana are not hiragana"),
        (lambda t: sum("ぁ" <= c <= "ゟ" for c in t) / max(1, len(t)), "white space"),
        (lambda t: sum("ぁ" <= c <= "ゟ" for c in "".join(t.split())) / len("".join(t.split())), "division by zero"),
        (lambda t: sum("ぁ" <= c <= "ゟ" for c in t), "divide by all"),
    ],
    ("corpus", 3): [
        (lambda a, b, n: len(set(a) & set(b)) / len(set(a) | set(b)), "one shared of three"),
        (lambda a, b, n: len({*a.split()} & {*b.split()}) / len({*a.split()} | {*b.split()}), "one shared of three"),
        (lambda a, b, n: sum((Counter(a[i : i + n] for i in range(len(a) - n + 1)) & Counter(b[i : i + n] for i in range(len(b) - n + 1))).values())
         / max(1, sum((Counter(a[i : i + n] for i in range(len(a) - n + 1)) | Counter(b[i : i + n] for i in range(len(b) - n + 1))).values())), "each n-gram once"),
        (lambda a, b, n: len({a[i : i + n] for i in range(len(a))} & {b[i : i + n] for i in range(len(b))}) / 2, "expected"),
    ],
    ("japanese", 1): [
        ("LLMの学習 スーパー1", "NFKC"),
        ("LLMの学習〜〜スーパー①", "〜 is removed"),
        ("LLMの学習 スーーーパー①", "run of ー"),
        ("ＬＬＭの学習スーパー①", "half-width"),
        (3, "a text in quotes"),
    ],
    ("japanese", 2): [
        (lambda m: m.replace(" ", "").replace("␣", " "), "words keep their spaces"),
        (lambda m: m.replace(" ␣", " "), "several marks"),
        (lambda m: m.replace("␣", ""), "at the end"),
        (lambda m: " ".join(w for w in m.replace("␣", "").split(" ") if w), "itself held"),
    ],
    ("japanese", 3): [
        (lambda g, s: 2 * len(set(g.split()) & set(s.split())) / (len(g.split()) + len(s.split())), "expected"),
        (lambda g, s: 2 * len(each(g) & each(s)) / (len(each(g)) + len(each(s))), "expected 0.4"),
        (lambda g, s: float(g == s), "2·1/(3+2)"),
        (lambda g, s: 0.0 if " " not in g else japanese.boundary_f1(g, s), "without a boundary agree"),
    ],
    ("subword", 1): [
        (lambda word, merges: list(word), "keep the rest"),
        (lambda word, merges: [word], "keep the rest"),
        (once, "not once"),
        (lambda word, merges: subword.apply_merges(word, sorted(merges)), "the order of the merges decides"),
        (lambda word, merges: subword.apply_merges(word, merges)[::-1], "keep the rest"),
    ],
    ("subword", 2): [
        (lambda texts, e: sum(len(e(t)) for t in texts) / sum(map(len, texts)), "turn the fraction around"),
        (lambda texts, e: sum(len(t) / len(e(t)) for t in texts) / len(texts), "mean of means"),
        (lambda texts, e: len(texts[0]) / len(e(texts[0])), "add up"),
        (lambda texts, e: sum(map(len, texts)) / len(texts), "expected"),
    ],
    ("subword", 3): [
        (lambda c, t, n: c.decode(c.encode(t)) == t, "compare with normalize"),
        (lambda c, t, n: True, "a b c"),
        (lambda c, t, n: c.decode(c.encode(t)).replace(" ", "") == n(t), "a b c"),
        (lambda c, t, n: len(c.encode(t)) == len(t) + 1, "expected"),
    ],
}  # fmt: skip


def said(chapter: Chapter, number: int, answer: Any, capsys: pytest.CaptureFixture[str]) -> str:
    chapter.check(number, answer)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "number"), [(name, i + 1) for name, c in CHAPTERS.items() for i in range(len(c.exercises))]
)
def test_exercise(name: str, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    chapter = CHAPTERS[name]
    assert said(chapter, number, chapter.exercises[number - 1].solution, capsys) == f"Exercise {number}: right.\n"
    assert len(WRONG[name, number]) >= 3
    for answer, words in WRONG[name, number]:
        message = said(chapter, number, answer, capsys)
        assert message.startswith(f"Exercise {number}: not yet.") and words in message and message.count("\n") == 1
    assert "waits for your answer" in said(chapter, number, ..., capsys)


@pytest.mark.parametrize(
    ("name", "number"), [(name, i + 1) for name, c in CHAPTERS.items() for i in range(len(c.exercises))]
)
def test_the_printed_solution_runs_in_the_notebook(name: str, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    chapter = CHAPTERS[name]
    chapter.solution(number)
    printed = capsys.readouterr().out
    if printed.startswith("def "):
        names: dict[str, Any] = {"re": re}  # what the notebooks import before their exercises
        exec(printed, names)
        answer = names[printed[4 : printed.index("(")]]
    else:
        answer = eval(printed)
    assert said(chapter, number, answer, capsys) == f"Exercise {number}: right.\n"


def test_there_are_three_exercises_a_chapter() -> None:
    assert all(len(chapter.exercises) == 3 for chapter in CHAPTERS.values())


def test_the_first_answer_of_chapter_two_is_what_normalize_gives() -> None:
    assert normalize(japanese.TYPED) == japanese.NORMAL
