"""Exercises for chapter 2: normalization, costs in the lattice, segmented lines, and the size of a test set."""

from functools import cache
from typing import Any

from course_lib.exercises import Chapter, Exercise
from course_lib.language.words import tr

TYPED = "ＬＬＭの　学習〜〜 スーーーパー ①"
FOOTWEAR, KIMONO = "ここ で はきもの を ぬぐ", "ここ で は きもの を ぬぐ"


def to_plain(marked: str) -> str:
    """Convert a segmented line to plain text: without marks, with single spaces between words."""
    words = (word.lstrip("␣").replace("␛s", "␣").replace("␛e", "␛") for word in marked.split(" "))
    return " ".join(word for word in words if word)


WIDTH, SLACK = 0.1, 1.25


@cache
def widths() -> list[float]:
    """Return the width of the 95 % interval of the baseline's F1 on the first 2, 3, … sentences of the gold file."""
    from course_lib import paths
    from course_lib.japanese.gold import count_words, f1_interval, read_gold

    gold = read_gold(paths.data("segmentation-gold.txt"))
    counts = count_words(gold, [list("".join(words)) for words in gold])
    intervals = (f1_interval(counts[:number]) for number in range(2, len(gold) + 1))
    return [high - low for _, low, high in intervals]


def _check_size(answer: Any) -> str | None:
    largest = len(widths()) + 1
    if answer not in range(2, largest + 1):
        return tr("the answer is a number of sentences, a whole number from 2 to {largest}.", largest=largest)
    number, enough = int(answer), next(n for n in range(2, largest + 1) if max(widths()[n - 2 :]) <= WIDTH)
    width = tr("with {number} sentences the interval is {width:.3f} wide", number=number, width=widths()[number - 2])
    if number < enough:
        return tr("{width}, or wider than {limit} with a few more: too few.", width=width, limit=WIDTH)
    if number > SLACK * enough:
        return tr("{width}: more work than needed for {limit}.", width=width, limit=WIDTH)
    return None


CHAPTER = Chapter(
    Exercise(
        f"what does normalize give for “{TYPED}”? Answer with a text in quotes",
        (
            ("LLMの学習スーパー1", "NFKC would change ①, but neologdn does not"),
            ("LLMの学習スーーーパー①", "a run of ー becomes one ー"),
            ("LLMの学習 スーパー ①", "spaces beside Japanese characters are removed"),
            (..., "compare it character by character"),
        ),
        (
            "Go through the text character by character: letters, the space, 〜, ー, the next space, ①.",
            "① does not change: only NFKC would change it.",
        ),
        "LLMの学習スーパー①",
        "Spaces beside Japanese characters and 〜 are removed, a run of ー becomes one ー, "
        "full-width letters become ASCII, and ① does not change.",
    ),
    Exercise(
        f"by how much do the costs of “{KIMONO}” and “{FOOTWEAR}” differ? Answer with (words, connections)",
        (
            ((-1176, 3853), "the order is (words, connections)"),
            ((-3853, 1176), "subtract the other way round: kimono minus footwear"),
            (..., "add up step.cost and step.connection of each path, and subtract"),
        ),
        (
            "lattice.path(line.split()) gives the steps of a path; each has a cost and a connection, the end too.",
            "Add up step.cost over the steps of both paths and subtract; then the same with step.connection.",
        ),
        (3853, -1176),
        "The kimono's path has one word more, and は and きもの cost 3,853 more than はきもの alone. Its connections "
        "are 1,176 cheaper, which is not enough: MeCab takes off its shoes.",
    ),
    Exercise(
        "write a function to_plain(marked): from 'Visual ␣Studio' to the plain 'Visual Studio', for any segmented line",
        (
            (("早稲田 大学",), "remove only the marks, and join the words with spaces"),
            (("Visual ␣Studio を a ␣␣b",), "a mark, or several, stands before a word: remove all"),
            (("雨 ␣",), "a mark alone stands for a space at the end of the line: drop it"),
            (("記号 は ␛s です",), "␛s stands for a ␣ that the text itself held: it becomes ␣"),
            (("␛es",), "␛e stands for ␛, so ␛es is the text ␛s: replace ␛s before ␛e"),
        ),
        (
            "Work word by word: marked.split(' ').",
            "Strip ␣ from the left of each word, then turn ␛s into ␣ and ␛e into ␛, and drop empty words.",
        ),
        to_plain,
        "The order matters: strip the marks first, otherwise the ␣ from ␛s would be stripped too.",
    ),
    Exercise(
        f"from how many sentences of the gold file on does the 95 % interval of the baseline's F1 stay at most {WIDTH} "
        "wide? Answer with that number, or up to a quarter more",
        _check_size,
        (
            "Measure the width, high - low, for the whole file and for half of it. How do they differ?",
            "The width shrinks with the square root of the number of sentences: half the width takes four times as "
            "many. Compute the number, then check its neighbors with gold.score(sentences_by_hand[:n], …).",
        ),
        30,
        "Four times the sentences for half the width: a difference of 0.01 between two segmenters takes thousands.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution
