"""Exercises for chapter 3: a step of BPE, its encoding, Unigram's pruning, the alphabet, texts to find, BPE."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, reduce
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from course_lib.exercises import SEE_FOLDED_CELL, Chapter, Exercise, from_notebook
from course_lib.exercises.answers import judge_cases
from course_lib.language.words import tr, tr_noop

Pair = tuple[str, str]


# Exercise 3.4: loss_if_removed
def _check_lost(answer: Any) -> str | None:
    words, scores = {"大学": 3, "大学生": 1}, {"大": -3.0, "学": -2.0, "生": -2.0, "大学": -1.0, "大学生": -1.5}
    # With the piece 大学, for example, 大学 has the probability e⁻¹ + e⁻⁵, without it e⁻⁵.
    advice = tr_noop("log_probability(words, scores) minus the same without the piece")
    cases = (
        (({"学学": 2}, scores, "大学"), 0.0, tr_noop("a piece that no word contains costs nothing")),
        ((words, scores, "大学"), 12.255120289, advice),
        ((words, scores, "大学生"), 1.686599021, advice),
    )
    if (problem := judge_cases(answer, cases)) is None:
        answer(words, scores, "大学")
        if "大学" not in scores:
            return tr("your function deletes the piece from scores itself: make a new dictionary without it.")
    return problem


ENTRIES, GOAL = 3000, 1.20
# Exercise 3.6: characters of a text, the factor between two texts, and the share of Japanese characters in them.
LENGTH, FACTOR, JAPANESE = 150, 1.5, 0.8
CHEAP = (
    "日本の町には多くの学校があり、子どもたちは朝早くから電車やバスで通っている。町の中心には大きな駅があって、駅の前には店が"
    "並んでいる。春には川の近くで祭りが行われ、多くの人が集まる。この祭りは今から百年ほど前に始まったと言われている。夏は暑く、"
    "冬は雪が降ることもあるが、人々は長い間この町で生活してきた。現在では新しい会社も増えて、人口は少しずつ大きくなっている。"
)
DEAR = (
    "魚屋の笊には鰯と鯖と鰤と鱈と鱚、桶には鰆と鰈と鮎と鯰と鱒、棚には鰊と鯊と鮃と鰹、奥には鱶の鰭と鱓と鱸が並ぶ。籬の傍には薊と菫と"
    "蓬と薺と芹、甕の脇には蕗と蕨と薇と虎杖、墻の外には楓と欅と樅と椛と榧と楢、畦には蝗と蟋蟀と螽斯と蜻蛉と蚯蚓、叢には鼬と狢と"
    "鼯鼠と土竜、梢には鶯と鵯と鶫と雉鳩と梟、沼には鷭と鴫と鸛と鷺が棲む。"
)


@cache
def _texts() -> list[str]:
    """Return documents to train on, the same in every profile, so that the same answers are right."""
    from course_lib import paths
    from course_lib.corpus.webtext import clean_webtext
    from course_lib.corpus.wikipedia import extract
    from course_lib.documents import read_texts

    with TemporaryDirectory() as name:
        articles, web = Path(name) / "articles.jsonl", Path(name) / "web.jsonl"
        extract(paths.data("jawiki-sample.xml.bz2"), articles)
        clean_webtext(paths.data("webtext-sample.txt.xz"), web)
        return [*read_texts(articles), *read_texts(web)]


@cache
def outcome(segmented: bool, limit_alphabet: int) -> float:
    """Return the characters per token of a BPE tokenizer of 3,000 entries on unseen documents."""
    from course_lib.subword.config import BpeConfig
    from course_lib.subword.sweep import train_on
    from course_lib.subword.unseen import unseen_texts

    codec = train_on(_texts(), BpeConfig(vocab_size=ENTRIES, limit_alphabet=limit_alphabet), segmented)
    return _ratio(unseen_texts(), codec.encode)


@cache
def _codec() -> Any:
    from course_lib.subword.config import BpeConfig
    from course_lib.subword.sweep import train_on

    return train_on(_texts(), BpeConfig(vocab_size=6000, limit_alphabet=4000), True)


def measure(text: str) -> float:
    """Return the characters per token of a BPE tokenizer of 6,000 entries, as `bpe` under the profile tiny."""
    return _ratio([text], _codec().encode)


def _ratio(texts: list[str], encode: Callable[[str], list[int]]) -> float:
    return sum(map(len, texts)) / sum(len(encode(text)) for text in texts)


# Exercise 3.5: the alphabet of BPE
def _check_alphabet(answer: Any) -> str | None:
    segmented, size = answer
    if segmented not in (True, False):
        return tr("hand in two values, True or False first: (segmented, limit_alphabet).")
    found = outcome(bool(segmented), int(size))
    if found >= GOAL:
        return None
    if size < 1200:
        advice = tr("many characters outside the alphabet cost up to four byte tokens each; keep more")
    elif size > 1900:
        advice = tr("so many single characters leave few entries for pairs; keep fewer")
    else:
        advice = tr("the alphabet has a good size, but no token may cross a word boundary; change that")
    shares = {"found": found, "goal": GOAL, "advice": advice}
    return tr("{found:.3f} characters per token on unseen text, {goal:.2f} are wanted: {advice}.", **shares)


# Exercise 3.6: a cheap and an expensive text
def _check_texts(answer: Any) -> str | None:
    known = "\n".join(_texts())
    for text in answer:
        body = "".join(text.split())
        if len(body) < LENGTH:
            return tr("a text has {number} characters; at least {least}, please.", number=len(body), least=LENGTH)
        if sum("ぁ" <= c <= "ヿ" or "一" <= c <= "鿿" for c in body) < JAPANESE * len(body):
            return tr("a text has too few Japanese characters; at least {share:.0%}, please.", share=JAPANESE)
        if len({body[at : at + 6] for at in range(len(body))}) < 0.9 * len(body):
            return tr("a text repeats itself; write each sentence once.")
        if any(text[at : at + 40] in known for at in range(0, len(text) - 40, 20)):
            return tr("a text is from the training corpus; take another one.")
    cheap, expensive = map(measure, answer)
    if cheap >= FACTOR * expensive:
        return None
    shares = {"cheap": cheap, "rare": expensive, "factor": cheap / expensive, "goal": FACTOR}
    return tr("{cheap:.2f} and {rare:.2f} characters per token: a factor of {factor:.2f}, {goal} is wanted.", **shares)


# Exercise 3.7: segmented lines to learn from, texts that must come back, and the number of entries; then the
# special texts, the entries of a longer training, and by which factor that has to beat the loop of 3.1.
LINES = (
    "学生 が 大学 で 学ぶ 。", "大学生 も 大学院生 も 大学 で 学ぶ 。", "父 も 大学 で 学んだ 。",
    "駅 より 大学 で 待つ 。", "大学 の 図書館 で 本 を 読む 。", "本 を 読んで 学生 は 学ぶ 。",
)  # fmt: skip

ANY_TEXT = "大学生 が 学ぶ", "鰯 😀 é", "  two  spaces ", "line\n", "", "大学</s></s></s> で"
SIZE = 290
SPECIAL, MORE, FASTER = ("</s>", "</s></s>"), 340, 4


def _bytes(text: str) -> str:
    """Return the UTF-8 bytes of a text as characters."""
    return text.encode().decode("latin-1")


def _library(lines: Sequence[str], size: int) -> Any:
    """Return the BPE of `tokenizers` on bytes, trained on segmented lines."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    library, alphabet = Tokenizer(models.BPE()), [chr(byte) for byte in range(256)]
    library.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(map(_bytes, lines), trainer)
    return library


def library_encoder(lines: Sequence[str], size: int) -> Callable[[str], list[int]]:
    """Return a function that encodes by the BPE of `tokenizers` on bytes; a space is the id 32."""
    library = _library(lines, size)
    return lambda text: [int(i) for word in _bytes(text).split(" ") for i in (32, *library.encode(word).ids)][1:]


@cache
def _many_lines() -> list[str]:
    """Return the unseen texts, segmented."""
    from course_lib.japanese import segment
    from course_lib.subword.unseen import unseen_texts

    return [segment(line, mark_spaces=False) for text in unseen_texts() for line in text.split("\n") if line]


def _merge_word(word: tuple[str, ...], pair: Pair) -> tuple[str, ...]:
    """Return a word in which the pair is merged, by the loop of 3.1."""
    symbols, at = list[str](), 0
    while at < len(word):
        step = 2 if word[at : at + 2] == pair else 1
        symbols.append("".join(word[at : at + step]))
        at += step
    return tuple(symbols)


@cache
def _loop_seconds() -> tuple[float, float]:
    """Return about how many processor seconds the loops of 3.1 take: for MORE entries; to encode every 20th line."""
    words: Any = Counter(tuple(word) for line in _many_lines() for word in _bytes(line).split(" "))
    start, tenth = process_time(), (MORE - 256) // 10
    for _ in range(tenth):
        counts = Counter[Pair]()
        for word, frequency in words.items():
            for pair in pairwise(word):
                counts[pair] += frequency
        best, merged = counts.most_common(1)[0][0], Counter[tuple[str, ...]]()
        for word, frequency in words.items():
            merged[_merge_word(word, best)] += frequency
        words = merged
    training = (process_time() - start) * (MORE - 256) / tenth
    merges = [tuple(pair) for pair in json.loads(_library(_many_lines(), MORE).to_str())["model"]["merges"]]
    start = process_time()
    for each in (tuple(word) for line in _many_lines()[::20] for word in _bytes(line).split(" ")):
        reduce(_merge_word, merges, each)
    return training, process_time() - start


# Exercise 3.7: Mine
def _check_tokenizer(kind: Any) -> str | None:
    mine, last = kind([*LINES, *SPECIAL * 9], SIZE, SPECIAL), SIZE + len(SPECIAL) - 1
    for text in (*ANY_TEXT, *LINES):
        ids = [int(number) for number in mine.encode(text)]
        if outside := [number for number in ids if not 0 <= number <= last]:
            return tr("{text!r} has the id {id}; ids are 0 to {last}.", text=text, id=outside[0], last=last)
        if (got := mine.decode(ids)) != text:
            return tr("{text!r} comes back as {got!r}: each space is a token, too.", text=text, got=got)
    # A special text of other bytes, and lines whose pairs end before the entries do.
    short = kind(["学 学"], SIZE, ("終",))
    if (number := len(short.encode("終"))) != 1 or short.decode(short.encode("学終")) != "学終":
        return tr("{text!r}, as a special text, has {number} tokens and comes back as {got!r}: 1 is wanted.",
                  text="終", number=number, got=short.decode(short.encode("終")))  # fmt: skip
    if (number := len(mine.encode("</s></s></s>"))) != 2:
        return tr("{text!r} has {number} tokens, 2 are possible: look for the longest special text first.",
                  text="</s></s></s>", number=number)  # fmt: skip
    if (number := len(mine.encode("</s"))) < 3:
        return tr("{text!r} has {number} tokens instead of 3: learn nothing from special texts.",
                  text="</s", number=number)  # fmt: skip
    if (got := mine.decode(mine.encode("鰯")[:1])) != "\ufffd":
        return tr("the first byte of 鰯 alone becomes {got!r}: decode broken bytes with errors='replace'.", got=got)
    if problem := _other_ids(mine, LINES, LINES, SIZE):
        return problem
    lines, loops = _many_lines(), _loop_seconds()
    start = process_time()
    mine = kind(lines, MORE, SPECIAL)
    trained = process_time()
    for line in lines[::20]:
        mine.encode(line)
    for seconds, loop, advice in (
        (trained - start, loops[0], tr_noop("in training, only words that hold the merged pair change")),
        (process_time() - trained, loops[1], tr_noop("in encoding, only merges of pairs that the word has matter")),
    ):
        if seconds > loop / FASTER:
            return tr("too slow: {seconds:.2f} s; the loops of 3.1 take about {loop:.2f}, and at most {limit:.2f} are "
                      "wanted: {advice}.",
                      seconds=seconds, loop=loop, limit=loop / FASTER, advice=tr(advice))  # fmt: skip
    return _other_ids(mine, lines, lines[::20], MORE)


def _other_ids(mine: Any, train: Sequence[str], lines: Sequence[str], size: int) -> str | None:
    """Return what is wrong if the learner's ids are not those of `tokenizers`."""
    encode = library_encoder(train, size)
    for line in lines:
        if (ids := [int(number) for number in mine.encode(line)]) != (right := encode(line)):
            return tr("{line!r} has the ids {ids}, with `tokenizers` {right}: keep the counts right after each merge, "
                      "use all entries, and of equal counts take the pair with the smaller ids.",
                      line=line, ids=ids, right=right)  # fmt: skip
    return None


# Exercise 3.1: pair_counts
PAIR_CASES = (
    (({("大", "学"): 3},), {("大", "学"): 3}, "a pair counts as often as its word occurs: add the frequency, not 1"),
    (({("大", "学"): 2, ("大", "学", "生"): 1},), {("大", "学"): 3, ("学", "生"): 1}, "add up over all words"),
    (({("も",): 5, ("学", "生"): 1},), {("学", "生"): 1},
     "a word of one symbol has no pair, and no pair spans two words"),
    (({("学", "大", "学"): 1},), {("学", "大"): 1, ("大", "学"): 1}, "(学, 大) and (大, 学) are two pairs"),
    (({("大学", "生"): 4},), {("大学", "生"): 4},
     "a symbol may have several characters: pair the symbols, not the characters"),
)  # fmt: skip

# Exercise 3.2: merge
MERGE_CASES = (
    (({("大", "学", "生"): 1}, ("大", "学")), {("大学", "生"): 1}, "大 and 学 become the one symbol 大学"),
    (({("も",): 2, ("学", "生"): 1}, ("大", "学")), {("も",): 2, ("学", "生"): 1},
     "words without the pair stay as they are"),
    (({("あ", "い", "あ", "い"): 1}, ("あ", "い")), {("あい", "あい"): 1}, "merge wherever the pair occurs, not once"),
    (({("も", "も", "も"): 1}, ("も", "も")), {("もも", "も"): 1},
     "go from left to right, and do not use a symbol twice"),
    (({("大", "学"): 3, ("大学",): 1}, ("大", "学")), {("大学",): 4},
     "two words may become equal: add their frequencies"),
)  # fmt: skip

# Exercise 3.3: encode_word
ENCODE_CASES = (
    (("大学生", [("大", "学")]), ["大学", "生"], "the answer is a list of symbols, in which 大 and 学 are one"),
    (("ababc", [("a", "b")]), ["ab", "ab", "c"], "a merge applies wherever the pair occurs, not once"),
    (("abc", [("b", "c"), ("a", "b")]), ["a", "bc"], "the order of the merges decides: the first uses up b"),
    (("aaa", [("a", "a")]), ["aa", "a"], "go from left to right, and do not use a symbol twice"),
)  # fmt: skip

CHAPTER = Chapter(
    Exercise(
        "write pair_counts(words): a Counter of the pairs of neighbors in all words, times the words' frequencies",
        PAIR_CASES,
        ("Two loops: over words.items(), and over zip(word, word[1:]).", "counts[pair] += frequency"),
        from_notebook("03_tokenizers", "pair_counts_ours"),
        f"{SEE_FOLDED_CELL} A word's pairs are zip(word, word[1:]).",
    ),
    Exercise(
        "write merge(words, pair): the words in which the pair has become one symbol, with their frequencies",
        MERGE_CASES,
        (
            "For each word build a new list of symbols, with an index that moves by 2 where word[at:at + 2] == pair.",
            "Put tuple(symbols) into a new Counter: merged[tuple(symbols)] += frequency",
        ),
        from_notebook("03_tokenizers", "merge_ours"),
        f"{SEE_FOLDED_CELL} The loop moves by two symbols where it merges, else by one.",
    ),
    Exercise(
        "write encode_word(word, merges): the word's symbols after all merges, in the order in which they were learned",
        ENCODE_CASES,
        (
            "Your merge does one step: it takes {tuple(word): 1} and gives the merged word as its only key.",
            "words = {tuple(word): 1}, then words = merge(words, pair) for each pair; the answer is list(*words).",
        ),
        from_notebook("03_tokenizers", "encode_word_ours"),
        f"{SEE_FOLDED_CELL} Encoding is training without the counting.",
    ),
    Exercise(
        "write loss_if_removed(words, scores, piece): by how much the log probability falls without the piece",
        _check_lost,
        (
            "Make a new dictionary of scores without the piece, and call log_probability twice.",
            "rest = {other: score for other, score in scores.items() if other != piece}",
        ),
        from_notebook("03_tokenizers", "loss_if_removed_ours"),
        f"{SEE_FOLDED_CELL} The other probabilities stay as they are; the next round of "
        "expectation and maximization corrects them.",
    ),
    Exercise(
        f"find (segmented, limit_alphabet) with which BPE of {ENTRIES} entries reaches {GOAL:.2f} characters per token "
        "on unseen text",
        _check_alphabet,
        (
            "Of the entries that are not fixed, which are worth most: more single characters, or more pairs?",
            "Try alphabets of 500, 1000, 1500, 2000 and 2500 and draw the curve: it has a maximum.",
            "At the best alphabet, compare segmented with raw text.",
        ),
        (False, 1500),
        "Too few characters, and common kanji cost three byte tokens each; too many, and characters that occur once "
        "take the entries of words. The best alphabet depends on the size of the vocabulary.",
    ),
    Exercise(
        f"find two texts of your own, (cheap, expensive), with a factor of {FACTOR} between their characters per token",
        _check_texts,
        (
            "Which characters and words does an encyclopedia rarely hold? Each costs one to three tokens.",
            "Everyday prose against a list of rare kanji: names of fish, plants or old provinces.",
        ),
        (CHEAP, DEAR),
        "A character outside the alphabet costs three byte tokens. A price per token is therefore a price per topic.",
    ),
    Exercise(
        "write the class Mine(lines, entries, special) with encode(text) and decode(ids): BPE on bytes, for any text",
        _check_tokenizer,
        (
            "Begin with the loop of 3.1, which stops at `entries`: the words are those of as_bytes(line).split(' '). "
            'The first 256 entries are chr(0) to chr(255); each merge adds "".join(pair).',
            "re.split with the special texts in brackets, joined by |, the longest first, keeps them as parts.",
            "For speed, keep the counts, and for each pair the words that hold it. For each word of the best pair, "
            "take its pairs off the counts, merge, and add the new ones. Of the pairs with the highest count, min by "
            "the ids of both symbols.",
            "A word is encoded by the earliest merge of a pair that it has, again and again. min(pairs, key=ranks.get)",
            'decode joins the entries, and reverses as_bytes: .encode("latin-1").decode(errors="replace")',
        ),
        from_notebook("03_tokenizers", "MineOurs"),
        f"{SEE_FOLDED_CELL} Every character consists of bytes, and all 256 bytes are entries, so no text is unknown.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution
