"""Sentence splitting: where a Japanese text may be cut, and where it must not.

A candidate is found by one regular expression; the reasons against a cut are asked one by one in `_ends_here`. Sentences inside
「…」 and （…） stay with the sentence around them. It does not look at grammar: a heading is a sentence of its own.
"""

import re
from bisect import bisect_right

OPEN, CLOSE = "「『（(［[【〈《“", "」』）)］]】〉》”"
PARTNER = dict(zip(CLOSE, OPEN, strict=True))
BRACKET = re.compile(f"[{re.escape(OPEN + CLOSE)}]")
# a candidate: one or more marks, then what belongs to them: closing quotes, （笑）, ♪, emoji
CANDIDATE = re.compile(
    r"(?P<mark>[。！？!?]+|(?<![.．])[.．](?![.．]))[。！？!?]*(?P<closing>[」』）)］\]】〉》”\"]*)"
    r"(?:[（(](?:笑|泣|汗|爆|苦笑|涙|怒|w+)[)）])?[♪☆★♡♥💦-🧿☀-➿\ufe0f\u200d]*"
)
# what says that the sentence goes on behind 」 or behind ！？: a particle, a comma, 言った
GOES_ON_AFTER_QUOTE = re.compile(
    r"[とはがをにのもでへや、，,。．・…」』）)]|って|など|なん|だ|から|まで|より|という|らし"
)
GOES_ON_AFTER_MARK = re.compile(
    r"と(?:[言思聞叫書答問尋感考呼怒笑い、]|は|も)|って|などと?|なんて|[、，,…）」』)]|という|の声"
)
NAME_AFTER_STOP = re.compile(r"を|の[ァ-ヺ一-龠]")  # モーニング娘。のコンサート
ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|No|vol|Vol|vs|cf|e\.g|i\.e|etc|Inc|Co|Ltd|Jr|Sr|Fig|pp?|ed|al))$"
)
JAPANESE = re.compile(r"[ぁ-んァ-ヺー一-龠々〆]")
BULLET = re.compile(r"[\s・●○■□◆◇▲△▼▽※★☆*•\-–—\d(（①-⑳<＜>＞|｜]")
UNFINISHED = re.compile(r"[、，,をはがのに]$")  # no sentence ends like this: it goes on in the next line


def split_sentences(text: str) -> list[str]:
    """The sentences of a text of any number of lines, without white space around them; none is empty.

    A sentence that plainly goes on in the next line is joined (an open bracket, a comma or a particle at the line's end).
    White space apart, the joined sentences are the text again.
    """
    if "\n" not in text:
        return _split(text)
    return [sentence for paragraph in _paragraphs(text) for sentence in _split(paragraph)]


def _paragraphs(text: str) -> list[str]:
    """The lines of a text, those that a hard line break cut in two joined again. An empty line always separates."""
    paragraphs: list[str] = []
    open_before = False
    for line in text.split("\n"):
        line = line.strip()
        if open_before and line and not BULLET.match(line):
            between = " " if paragraphs[-1][-1:].isascii() and line[:1].isascii() else ""
            paragraphs[-1] += between + line
        elif line:
            paragraphs.append(line)
        open_before = bool(line) and (UNFINISHED.search(line) is not None or _unclosed(paragraphs[-1]))
    return paragraphs


def _unclosed(line: str) -> bool:
    """Whether a 「 or 『 is still open at the end of the line (and the line is no longer than a quotation may be)."""
    return len(line) < 400 and (line.count("「") > line.count("」") or line.count("『") > line.count("』"))


def _split(line: str) -> list[str]:
    sentences: list[str] = []
    start = 0
    inside = _enclosed(line) if BRACKET.search(line) else []
    for candidate in CANDIDATE.finditer(line):
        end = candidate.end()
        if (inside and _is_enclosed(line, start, candidate, inside)) or not _ends_here(line, candidate):
            continue
        if sentence := line[start:end].strip():
            sentences.append(sentence)
        start = end
    if rest := line[start:].strip():
        sentences.append(rest)
    return sentences


def _is_enclosed(line: str, start: int, candidate: re.Match[str], inside: list[tuple[int, int]]) -> bool:
    """Whether the candidate is inside brackets that go on, or ends a remark in round brackets that interrupts its sentence."""
    last = (
        candidate.start("closing") + len(candidate["closing"]) - 1
    )  # the mark itself, or the last bracket that closes
    pair = bisect_right(inside, (last, -1)) - 1  # the last pair that opens before it
    if pair < 0:
        return False
    opening, closing = inside[pair]
    return last < closing or (last == closing and line[opening] in "（(" and line[start:opening].strip() != "")


def _enclosed(line: str) -> list[tuple[int, int]]:
    """(opening, closing) positions of the outermost brackets that have a partner, in order. A lone one encloses nothing."""
    waiting: list[tuple[str, int]] = []
    pairs: list[tuple[int, int]] = []
    for bracket in BRACKET.finditer(line):
        if bracket[0] in OPEN:
            waiting.append((bracket[0], bracket.start()))
        elif (depth := _innermost(waiting, PARTNER[bracket[0]])) is not None:
            opening = waiting[depth][1]
            del waiting[depth:]
            while pairs and pairs[-1][0] > opening:  # pairs within this one
                pairs.pop()
            pairs.append((opening, bracket.start()))
    return pairs


def _innermost(waiting: list[tuple[str, int]], kind: str) -> int | None:
    return next((i for i in range(len(waiting) - 1, max(-1, len(waiting) - 17), -1) if waiting[i][0] == kind), None)


def _ends_here(line: str, candidate: re.Match[str]) -> bool:
    """Whether the sentence really ends at the candidate. Asked only outside of brackets."""
    mark, at, end = candidate["mark"], candidate.start(), candidate.end()
    if end == len(line):
        return True
    if candidate["closing"]:
        return not GOES_ON_AFTER_QUOTE.match(line, end)
    if mark[-1] == "。":
        return not NAME_AFTER_STOP.match(line, end)
    before, after = line[max(0, at - 8) : at], line[end : end + 8]
    if mark[-1] in ".．":
        return _period_ends(before, after)
    if before[-1:].isascii() and before[-1:].isalnum() and not after[0].isspace():
        return False  # Yahoo!ニュース
    return not GOES_ON_AFTER_MARK.match(after)


def _period_ends(before: str, after: str) -> bool:
    """3.14, a.b@example.jp, Mr. Smith, U.S. and file.txt go on; である．これは and 'end. Next' do not."""
    if JAPANESE.match(before[-1:]) or before[-1:] in CLOSE:
        return not after[0].isdigit()
    if ABBREVIATION.search(before) or not before[-1:].isalnum():
        return False
    if not after[0].isspace():
        return not before[-1:].isdigit() and JAPANESE.match(after) is not None  # normalization took the space before 彼
    following = after.lstrip()[:1]
    return following.isupper() or JAPANESE.match(following) is not None or following in OPEN + '"'
