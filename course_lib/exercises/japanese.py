"""Exercises for chapter 2: normalization, segmented lines, and the F1 score for word boundaries."""

from typing import Any

from course_lib.exercises import Chapter, Exercise

TYPED = "ＬＬＭの　学習〜〜 スーーーパー ①"
NORMAL = "LLMの学習スーパー①"


def _check_normal(answer: Any) -> str | None:
    from course_lib.japanese import normalize

    wanted = normalize(TYPED)
    if not isinstance(answer, str):
        return f"expected a text in quotes, got {type(answer).__name__}."
    if answer == wanted:
        return None
    mistakes = {
        "〜": "〜 is removed",
        "　": "a full-width space between Japanese characters is removed",
        "ーー": "a run of ー becomes one ー",
        "Ｌ": "full-width letters become half-width",
        "1": "NFKC would change ①, but neologdn does not",
        " ": "spaces beside Japanese characters are removed",
    }
    reason = next(
        (text for sign, text in mistakes.items() if sign in answer and sign not in wanted),
        "compare it character by character",
    )
    return f"{answer!r} is not the right text: {reason}."


def to_plain(marked: str) -> str:
    """Convert a segmented line to plain text: without marks, with single spaces between words."""
    words = (word.lstrip("␣").replace("␛s", "␣").replace("␛e", "␛") for word in marked.split(" "))
    return " ".join(word for word in words if word)


def boundary_f1(gold: str, guess: str) -> float:
    """Return the F1 score (0 to 1) for the word boundaries inside two segmentations of the same text."""

    def boundaries(line: str) -> set[int]:
        positions, length = set(), 0
        for word in line.split(" ")[:-1]:
            length += len(word)
            positions.add(length)
        return positions

    right, made = boundaries(gold), boundaries(guess)
    return 2 * len(right & made) / (len(right) + len(made)) if right or made else 1.0


CHAPTER = Chapter(
    Exercise(
        f"what does normalize({TYPED!r}) give? Answer with a text",
        _check_normal,
        (
            "Go through the text character by character: letters, the space, 〜, ー, the next space, ①.",
            "① does not change: only NFKC would change it.",
        ),
        NORMAL,
        "Spaces beside Japanese characters and 〜 are removed, a run of ー becomes one ー, "
        "full-width letters become ASCII, and ① does not change.",
    ),
    Exercise(
        "write a function to_plain(marked): from 'Visual ␣Studio' to the plain 'Visual Studio', for any segmented line",
        (
            (
                ("早稲田 大学",),
                "早稲田 大学",
                "remove only the marks; the words keep their spaces",
                ((["早稲田", "大学"], "the answer is one text: join the words with spaces"),),
            ),
            (
                ("Visual ␣Studio を 使う",),
                "Visual Studio を 使う",
                "remove only the marks; the words keep their spaces",
            ),
            (("a ␣␣b",), "a b", "a word can carry several marks"),
            (("雨 ␣",), "雨", "a mark alone stands for a space at the end of the line: drop it"),
            (
                ("記号 は ␛s です",),
                "記号 は ␣ です",
                "␛s stands for a ␣ that the text itself held: it becomes ␣",
                (("記号 は です", "strip the marks before ␛s becomes ␣; otherwise the new ␣ is stripped with them"),),
            ),
            (("␛es",), "␛s", "␛e stands for ␛, so ␛es is the text ␛s: replace ␛s before ␛e"),
        ),
        (
            "Work word by word: marked.split(' ').",
            "Strip ␣ from the left of each word, then turn ␛s into ␣ and ␛e into ␛, and drop empty words.",
        ),
        to_plain,
        "The order matters: strip the marks first, otherwise the ␣ from ␛s would be stripped too.",
    ),
    Exercise(
        "write a function boundary_f1(gold, guess) of two segmented lines of the same text",
        (
            (("外国 人 参政 権", "外国 人 参政 権"), 1.0, "identical lines share every boundary"),
            (
                ("外国 人 参政 権", "外国 人参 政権"),
                0.4,
                "the boundaries are after characters 2, 3 and 5 in the first line and after 2 and 4 in the second: "
                "one is shared, so F1 is 2·1/(3+2)",
                (
                    (2 / 7, "that counts shared words; count shared boundaries, which are positions in the text"),
                    (6 / 7, "a position counts characters, not words: add up the lengths of the words"),
                    (4 / 7, "every segmentation ends at the end of the line: this boundary does not count"),
                    (1 / 4, "that is shared / all boundaries; F1 is 2·shared / (gold + guess)"),
                    (0.0, "F1 is not all or nothing: the boundary after character 2 is right"),
                ),
            ),
            (("東 京都", "東京 都"), 0.0, "compare positions in the text, not numbers of words"),
            (("雨 が", "雨が"), 0.0, "the end of the line is not a boundary"),
            (("雨", "雨"), 1.0, "two segmentations without a boundary agree: 1.0"),
        ),
        (
            "A boundary is a position in the text without spaces.",
            "Add up the lengths of the words, without the last word; F1 is 2·shared / (gold + guess).",
        ),
        boundary_f1,
        "This number is used to compare segmenters: 0.97 against text segmented by hand is good.",
    ),
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution
