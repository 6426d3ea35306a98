"""Exercises for chapter 2: normalization, costs in the lattice, segmented lines, and the size of a test set."""

from functools import cache
from typing import Any

from course_lib.exercises import Chapter, Exercise
from course_lib.language.words import tr

TYPED = "ＬＬＭの　学習〜〜 スーーーパー ①"
NORMAL = "LLMの学習スーパー①"


def _check_normal(answer: Any) -> str | None:
    from course_lib.japanese import normalize

    wanted = normalize(TYPED)
    if not isinstance(answer, str):
        return tr("expected a text in quotes, got {type_answer___name}.", type_answer___name=type(answer).__name__)
    if answer == wanted:
        return None
    mistakes = {
        "〜": tr("〜 is removed"),
        "　": tr("a full-width space between Japanese characters is removed"),
        "ーー": tr("a run of ー becomes one ー"),
        "Ｌ": tr("full-width letters become half-width"),
        "1": tr("NFKC would change ①, but neologdn does not"),
        " ": tr("spaces beside Japanese characters are removed"),
    }
    reason = next(
        (text for sign, text in mistakes.items() if sign in answer and sign not in wanted),
        tr("compare it character by character"),
    )
    return tr("{answer!r} is not the right text: {reason}.", answer=answer, reason=reason)


FOOTWEAR, KIMONO = "ここ で はきもの を ぬぐ", "ここ で は きもの を ぬぐ"


@cache
def costs(line: str) -> tuple[int, int]:
    """Return the sums of the word costs and of the connection costs of a segmentation, with the end of the sentence."""
    from course_lib.japanese import lattice

    steps = lattice.path(line.split())
    return sum(step.cost for step in steps), sum(step.connection for step in steps)


def _check_costs(answer: Any) -> str | None:
    if not isinstance(answer, list) or len(answer) != 2 or not all(isinstance(n, int | float) for n in answer):
        return tr("hand in two numbers: (difference of the word costs, difference of the connection costs).")
    words, links = (kimono - footwear for kimono, footwear in zip(costs(KIMONO), costs(FOOTWEAR), strict=True))
    if answer == [words, links]:
        return None
    if answer == [links, words]:
        return tr("the order is (words, connections).")
    if answer == [-words, -links]:
        return tr(
            "subtract the other way round: kimono minus footwear, so that a positive number is a loss of the kimono."
        )
    if sorted(answer) == sorted((sum(costs(KIMONO)), sum(costs(FOOTWEAR)))):
        return tr("these are the totals of the two paths; hand in how their words and their connections differ.")
    if [abs(number) for number in answer] == [abs(words), abs(links)]:
        return tr("one sign is wrong: a difference is negative where the kimono is the cheaper of the two.")
    right = (
        tr("the words are right")
        if answer[0] == words
        else tr("the connections are right")
        if answer[1] == links
        else ""
    )
    if right:
        return tr(
            "{right}, the other number is not: together they must make {total:,}.",
            right=right,
            total=words + links,
        )
    return tr(
        "{first:,} and {second:,} are not the differences. Add up step.cost and step.connection of each path.",
        first=answer[0],
        second=answer[1],
    )


def to_plain(marked: str) -> str:
    """Convert a segmented line to plain text: without marks, with single spaces between words."""
    words = (word.lstrip("␣").replace("␛s", "␣").replace("␛e", "␛") for word in marked.split(" "))
    return " ".join(word for word in words if word)


WIDTH, SLACK = 0.1, 1.25


@cache
def widths() -> list[float]:
    """Return the width of the 95 % interval of the baseline's F1 on the first 2, 3, … sentences of the gold file."""
    from course_lib.japanese.gold import count_words, f1_interval, read_gold
    from course_lib.workspace import products as workspace

    gold = read_gold(workspace.data("segmentation-gold.txt"))
    counts = count_words(gold, [list("".join(words)) for words in gold])
    intervals = (f1_interval(counts[:number]) for number in range(2, len(gold) + 1))
    return [high - low for _, low, high in intervals]


def _check_size(answer: Any) -> str | None:
    if not isinstance(answer, int | float) or answer != int(answer):
        return tr("the answer is a number of sentences, a whole number; {answer!r} is none.", answer=answer)
    number, largest = int(answer), len(widths()) + 1
    if number < 2:
        return tr("an interval over sentences needs at least 2 of them.")
    if number > largest:
        return tr("the file has only {largest} sentences.", largest=largest)
    width = widths()[number - 2]
    if width > WIDTH:
        return tr(
            "with {number} sentences the interval is {width:.3f} wide, more than {limit}: too few.",
            number=number,
            width=width,
            limit=WIDTH,
        )
    enough = next(size for size in range(2, largest + 1) if max(widths()[size - 2 :]) <= WIDTH)
    if number < enough:
        return tr(
            "with {number} sentences the interval is {width:.3f} wide, but with a few more it is wider "
            "than {limit} again: too few. Look for the number from which on it stays below.",
            number=number,
            width=width,
            limit=WIDTH,
        )
    if number > SLACK * enough:
        return tr(
            "with {number} sentences the interval is {width:.3f} wide: more work than needed for {limit}.",
            number=number,
            width=width,
            limit=WIDTH,
        )
    return None


CHAPTER = Chapter(
    Exercise(
        f"what does normalize give for “{TYPED}”? Answer with a text in quotes",
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
        f"by how much do the costs of “{KIMONO}” and “{FOOTWEAR}” differ? Answer with (words, connections)",
        _check_costs,
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
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution
