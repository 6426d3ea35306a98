"""Exercises for chapter 2: sentences, the cheapest path, a repaired cost, segmented lines, and an ambiguous text.

The learner's functions are compared with the library's splitter and with MeCab itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

from course_lib.exercises import SEE_FOLDED_CELL, Chapter, Exercise, from_notebook
from course_lib.language.words import tr, tr_noop

Link = Callable[[Any, Any], int]


def to_plain(marked: str) -> str:
    """Convert a segmented line to plain text: without marks, with single spaces between words."""
    words = (word.lstrip("␣").replace("␛s", "␣").replace("␛e", "␛") for word in marked.split(" "))
    return " ".join(word for word in words if word)


def _split_sentences(text: str) -> list[str]:
    from course_lib.japanese import split_sentences

    return split_sentences(text)


# The sentences on which the learner's search is compared with MeCab's.
SENTENCES = (
    "外国人参政権",
    "東京都に住む",
    "くるまで待つ",
    "すもももももももものうち",
    "この先生きのこる",
    "ここではきものをぬぐ",
)


def mecabs(sentence: str) -> list[Any]:
    """Return the cost of MeCab's path and its words, as MeCab prints them."""
    from course_lib.japanese import mecab

    return [int(mecab.tagger('-F "" -U "" -E %pc').parse(sentence)), mecab.words(sentence)]


def _one_path_per_position(words: Sequence[Any], link: Link) -> int:
    """Return the cost if only one path is stored for all words that end at the same character."""
    best: dict[int, tuple[int, Any]] = {words[0].end: (0, words[0])}
    for word in words[1:]:
        total, before = best[word.start]
        total += link(before, word) + word.cost
        if word.end not in best or total < best[word.end][0]:
            best[word.end] = total, word
    return best[words[-1].end][0]


def _cheapest_next_word(words: Sequence[Any], link: Link) -> int:
    """Return the cost if the cheapest next word is chosen at each position."""
    total, now = 0, words[0]
    while now is not words[-1]:
        after = [(link(now, word) + word.cost, at) for at, word in enumerate(words[1:], 1) if word.start == now.end]
        cost, at = min(after)
        total, now = total + cost, words[at]
    return total


# Exercise 2.2: cheapest
def _check_cheapest(answer: Any) -> str | None:
    from course_lib.japanese import lattice

    def cost(words: Sequence[Any], link: Link) -> int:
        return lattice.cheapest_paths(words, link)[words[-1]][0]

    def free(words: Sequence[Any]) -> list[Any]:
        """Return the different words, without costs of their own."""
        return list(dict.fromkeys(word._replace(cost=0) for word in words))

    # What a mistake makes of the cost, and its advice.
    mistakes: tuple[tuple[Callable[[Any, Link], int], str], ...] = (
        (lambda words, link: cost(words, lambda before, word: 0), tr_noop("you left out the connection costs")),
        (lambda words, link: cost(free(words), link), tr_noop("you left out the words' own costs")),
        (lambda words, link: cost(words, lambda before, word: link(before, word) if word.text else 0),
         tr_noop("the connection to the end has a cost, too")),
        (_one_path_per_position, tr_noop("keep the cheapest path of each word, not one for all words that end there")),
        (_cheapest_next_word, tr_noop("you take the cheapest next word; an expensive word may save more later")),
    )  # fmt: skip
    link = lattice.connection
    for sentence in SENTENCES:
        words = lattice.candidates(sentence)
        expected, path = mecabs(sentence)
        found = answer(words, link)
        if found is None:
            return tr("your function returns nothing: end it with return total, path.")
        total, chosen = found
        chosen = [getattr(word, "text", word) for word in chosen]
        if total == expected and chosen == path:
            continue
        if total == expected:
            advice = tr_noop("the cost is right; the path is the list of the words' texts without start and end")
        else:
            other = tr_noop("add the cost so far, the connection and the word's cost, and keep the smallest sum")
            advice = next((advice for wrong, advice in mistakes if wrong(words, link) == total), other)
        message = tr_noop("For {sentence} MeCab has {expected:,} {path}, your function {total:,} {chosen}: {advice}.")
        return tr(
            message, sentence=sentence, expected=expected, path=" ".join(path), total=total,
            chosen=" ".join(map(str, chosen)), advice=tr(advice),
        )  # fmt: skip
    return None


# Exercise 2.3: sentences with foreigners and with carrots, in both of which 人参 is a candidate, and the right words.
PEOPLE = ("外国 人 参政 権 を めぐる 議論", "外国 人 参加 者 が 増えた 。", "中国 人 参謀 が 来た 。")
CARROTS = ("人参 を 切る 。", "馬 は 人参 が 好きだ 。", "朝鮮 人参 を 飲む 。", "カレー に 人参 を 入れる 。")


def repaired(raised: int, line: str) -> str:
    """Return MeCab's segmentation of a sentence if the word 人参 cost that much more."""
    from course_lib.japanese import lattice

    words = [
        word._replace(cost=word.cost + raised) if word.text == "人参" else word
        for word in lattice.candidates(line.replace(" ", ""))
    ]
    return " ".join(word.text for word in lattice.path_to(words[-1], lattice.cheapest_paths(words))[1:-1])


# Exercise 2.3: the cost of 人参
def _check_carrot(answer: Any) -> str | None:
    raised = int(answer)
    for lines, advice in (
        (PEOPLE, tr_noop("the carrot is still too cheap")),
        (CARROTS, tr_noop("now the carrot is too expensive for those who eat it")),
    ):
        for line in lines:
            if (found := repaired(raised, line)) != line:
                return tr("With {raised:,} more: {found}: {advice}.", raised=raised, found=found, advice=tr(advice))
    return None


# Exercise 2.5: the longest text, and the largest difference of the costs of the two readings.
LONGEST, NEAR = 20, 5000


# Exercise 2.5: a text with a second reading
def _check_ambiguous(answer: Any) -> str | None:
    from course_lib.japanese import lattice, mecab

    words = answer.split() if isinstance(answer, str) else list(answer)
    text = "".join(words)
    if not text or len(text) > LONGEST:
        return tr("hand in the words of a text of 1 to {longest} characters, in one string.", longest=LONGEST)
    if text in "".join(line.replace(" ", "") + "\n" for line in (*SENTENCES, *PEOPLE, *CARROTS)):
        return tr("this text is one of the chapter's: find one of your own.")
    first = mecab.words(text)
    if words == first:
        return tr("MeCab chooses these words, too: hand in the other reading.")
    if all(len(word) == 1 for word in words if word not in first):
        return tr("this only cuts a word of MeCab's into characters: hand in other words.")
    mine, best = lattice.path(words)[-1].total, lattice.path(first)[-1].total
    if mine - best <= NEAR:
        return None
    message = tr_noop("MeCab reads {first} for {best:,}, yours costs {mine:,}: at most {near:,} more are wanted.")
    return tr(message, first=" ".join(first), best=best, mine=mine, near=NEAR)


# Exercise 2.1: split
SPLIT_CASES = (
    (("雨だ。風も吹く。",), _split_sentences, "a sentence ends behind 。, which belongs to it"),
    (("え？本当！はい。",), _split_sentences, "！ and ？ end a sentence as well"),
    (("待って！？もう一度!!",), _split_sentences, "a run of marks is one end; !? in half width, too"),
    (("続きは明日",), _split_sentences, "the rest without a mark is a sentence, too; no sentence is empty"),
    (("「はい。そうです。」と言った。",), _split_sentences, "do not cut inside brackets: count those that are open"),
    (("彼は（本当に！）来た。",), _split_sentences, "there are four kinds of brackets: 「」, 『』, （） and ()"),
    (("「『来い！』と書け。」と命じた。行く。",), _split_sentences,
     "brackets nest: a number of open brackets, not a flag"),
    (("1) 行く。次へ。",), _split_sentences, "a closing bracket alone closes nothing: the number never falls below 0"),
)  # fmt: skip

# Exercise 2.4: to_plain
PLAIN_CASES = (
    (("早稲田 大学",), "早稲田 大学", "remove only the marks, and join the words with spaces"),
    (("Visual ␣Studio を a ␣␣b",), "Visual Studio を a b", "a mark, or several, stands before a word: remove all"),
    (("雨 ␣",), "雨", "a mark alone stands for a space at the end of the line: drop it"),
    (("記号 は ␛s です",), "記号 は ␣ です", "␛s stands for a ␣ that the text itself held: it becomes ␣"),
    (("␛es",), "␛s", "␛e stands for ␛, so ␛es is the text ␛s: replace ␛s before ␛e"),
)  # fmt: skip

CHAPTER = Chapter(
    Exercise(
        "write split(text): the sentences of one line; a run of 。！？!? outside brackets ends a sentence",
        SPLIT_CASES,
        (
            "Go through the text with enumerate and count the open brackets: +1 at 「『（(, −1 at 」』）), at least 0.",
            "Cut behind a mark if no bracket is open and the next character, text[at + 1 : at + 2], is no mark.",
        ),
        from_notebook("02_normalize_and_segment", "split_ours"),
        f"{SEE_FOLDED_CELL} The number of open brackets is enough.",
    ),
    Exercise(
        "write cheapest(words, connection): the smallest sum of costs from the first to the last word, and its path",
        _check_cheapest,
        (
            "best = {words[0]: (0, [])} holds, for each word, the cost and the words of the cheapest path to its end.",
            "For each other word: options = [(total + connection(before, word) + word.cost, path) for before, (total, "
            "path) in best.items() if before.end == word.start]",
        ),
        from_notebook("02_normalize_and_segment", "cheapest_ours"),
        f"{SEE_FOLDED_CELL} One path is kept for each word, since the next connection depends on its class.",
    ),
    Exercise(
        "choose by how much 人参 is to cost more, so that foreigners vote and carrots can still be eaten",
        _check_carrot,
        (
            "The right path of 外国人参政権 costs 10,855, the cheapest one 8,421.",
            "Too much, and 人参 falls apart where it is meant. Try powers of two with exercises.repaired(d, line).",
        ),
        4000,
        "From 2,435 on the carrot loses; above 7,163, 人参 falls into 人 and 参 everywhere. A user dictionary "
        "sets such costs.",
    ),
    Exercise(
        "write a function to_plain(marked): from 'Visual ␣Studio' to the plain 'Visual Studio', for any segmented line",
        PLAIN_CASES,
        (
            "Work word by word: marked.split(' ').",
            "Strip ␣ from the left of each word, then turn ␛s into ␣ and ␛e into ␛, and drop empty words.",
        ),
        to_plain,
        "The order matters: strip the marks first, otherwise the ␣ from ␛s would be stripped too.",
    ),
    Exercise(
        f"find a text of your own, at most {LONGEST} characters, with a second reading; hand in its words in a string",
        _check_ambiguous,
        (
            "Kana without kanji are ambiguous, and so are names of places and offices in a row.",
            "くるまで待つ: くるま | で (in the car) or くる | まで (until somebody comes). Find another one like it.",
        ),
        "かね おくれ たのむ",
        "Where two readings cost nearly the same, a single connection decides, and MeCab cannot know the sense.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution
