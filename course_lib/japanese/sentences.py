"""Sentence splitting for Japanese text.

One regular expression finds each candidate for a sentence end. `_ends_here` then checks, one by one, the reasons not to
split there. Sentences inside 「…」 and （…） are kept within the sentence around them. The rules do not use grammar: a
heading is a sentence of its own.
"""

import re
from bisect import bisect_left, bisect_right

OPEN, CLOSE = "「『（(［[【〈《“", "」』）)］]】〉》”"
PARTNER = dict(zip(CLOSE, OPEN, strict=True))
BRACKET = re.compile(f"[{re.escape(OPEN + CLOSE)}]")
# Signs that begin a list item more often than they decorate a sentence end. They belong to the previous sentence only
# if whitespace follows.
ITEM = "★☆☎-☓☛-☟✁-✘❶-➿"
# Candidate for a sentence end: one or more marks, then closing quotation marks, （笑）, ♪ and emoji.
CANDIDATE = re.compile(
    r"(?P<mark>[。！？!?]+|(?<![.．])(?:[.．](?![.．])|[.．]{3,}(?![.．。！？!?])))[。！？!?]*"
    r"(?P<closing>[」』）)］\]】〉》”\"]*)(?:[（(](?:笑|泣|汗|爆|苦笑|涙|怒|w+)[)）])?"
    rf"(?:(?![{ITEM}])[♪♡♥💦-🧿☀-➿\ufe0f\u200d]|[{ITEM}]+(?!\S))*"
)
# Signs that the sentence continues after 」 or after ！？: a particle, a comma, 言った. No particle is before っ or ん:
# がっかり, はっきり, もっと, のんびり. や and へ are before few hiragana: やがて, やはり, へえ.
GOES_ON_AFTER_QUOTE = re.compile(
    r"[とはがをにのもで](?![っん])|や(?![ぁ-ん])|やら|へ(?![ぁ-ん])|へ[のとはも]|等[のをがはにでと、]|[、，,。．・…」』）)]|って|など|なん|だ|から|まで|より|という|らし"
    r"|[ぐく]らい|ほど(?!な)|ばかり|ばっか|しか(?![したもるり])|さえ(?!ぎ)|みたい|よう(?:[なにだで]|です)|っ[とぽつ]|じゃな|です"
    r"|か(?:[をもな、]|と(?!う)|どうか)|[ねよさわ][。、！？!?]|(?:程度|同然|状態|風|式|的|調)[のなにで]"
)
GOES_ON_AFTER_MARK = re.compile(
    r"と(?:[言思聞叫書答問尋感考呼怒笑い、]|は|も)|って|などと?|なんて|[、，,…）」』)]|という|の声"
    r"|[ぐく]らい[のにで、しは]|みたいな|ような|ように"
)
# A mark outside brackets may be the last letter of a name: アイカツ！が流行, モーニング娘。に加入. The text on both
# sides decides. Before the mark: a letter that is not hiragana, with which most sentences end.
NAME_END = re.compile(r"[^\W\d_ぁ-ゟー]ー*$")
# Particles, but not the beginnings of もう少し (も少し), もう一度 (も一度) and から揚げ.
PARTICLE = r"(?:[がはのにでとへや]|も(?!少し|一度|一つ)|から(?!揚)|まで|には|(?:[とへ]|から|まで)[はもの]|での)"
# Compound particles (として, による), and a copula that ends the sentence (です。). Nothing else begins with them.
COMPOUND = r"として|に(?:よ[るりっ]|お[いけ]|つい[てた]|とっ[てた])|(?:だ|だった|です|でした|である)[。！？!?]"
# After the mark: a comma, or a particle and then no hiragana, because はやく and がっかり begin like particles. Before
# a comma, が, で, と and や are more often conjunctions or interjections. Group 1: no sentence begins like this,
# whatever is before the mark; を and hiragana begin words in old spelling (をかしい).
AFTER_NAME = re.compile(
    rf"(を[^ぁ-ゟ]|の[ァ-ヺ一-龠]|のよう[なに])|を|など|、|{COMPOUND}|{PARTICLE}[「『A-Za-z\dァ-ヺ一-鿿]|(?:[はのにもへ]|から|まで)[、，,]"
)
AFTER_NAME_BEGINS = "をがはのにでとへやもかまなだ、"
ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|No|vol|Vol|vs|cf|e\.g|i\.e|etc|Inc|Co|Ltd|Jr|Sr|Fig|pp?|ed|al))$"
)
# After these polite forms, ．．． ends the sentence; after other words (えーと．．．), the sentence may continue.
POLITE_END = re.compile(r"(?:です|ます|でした|ました|ません|でしょう|ましょう|ください|下さい)[ねよか]?$")
# A quotation in "…". Its first " becomes ‟ while a line is split: only a " that closes a quotation belongs to the mark
# before it.
STRAIGHT_QUOTE = re.compile(r'"([^"]*")')
JAPANESE = re.compile(r"[ぁ-んァ-ヺー一-龠々〆]")
NOT_SPACE = re.compile(r"\S")
BULLET = re.compile(r"[\s・●○■□◆◇▲△▼▽※★☆*•\-–—\d(（①-⑳<＜>＞|｜]")
# Characters; a 「 that remains open longer than this is treated as a mistake.
LONGEST_QUOTE = 400
# A line that ends like this is not a complete sentence and continues on the next line, if it is not a heading.
UNFINISHED = tuple("、，,をはがのに")
# A heading that ends like an unfinished line (はじめに, 君の名は): at most ten characters, none of them punctuation.
# The number or bullet before it (group 1) does not count: 1. はじめに, 第2章 旅のはじめに, （三）はじめに, ■おわりに.
NUMERAL = r"(?:\d+|[Ⅰ-ⅿ①-⑳IVX]+|[一二三四五六七八九十]+|[A-Za-z])"
HEADING = re.compile(
    rf"([\s●○■□◆◇▲△▼▽※★☆]*(?:第{NUMERAL}[章節部][.．、:：\s]*|[(（]?{NUMERAL}[)）.．、:：\s]+)?)"
    rf"[^、。，．,.！？!?…‥:：;；{re.escape(OPEN + CLOSE)}]{{1,9}}[はのに]"
)


def split_sentences(text: str) -> list[str]:
    """Return the sentences in a text of one or more lines, without surrounding whitespace; no sentence is empty.

    Two lines are joined if the first clearly continues: it has an open 「 or 『, or ends with a comma or a particle.
    But a paragraph's first line that is short, has no punctuation and ends with は, の or に is a heading of its own.
    Except for whitespace, joining the sentences restores the text.
    """
    if "\n" not in text:
        return _split(text)
    return [sentence for paragraph in _paragraphs(text) for sentence in _split(paragraph)]


def _paragraphs(text: str) -> list[str]:
    """Join lines where a line break splits a sentence. An empty line always separates paragraphs."""
    paragraphs: list[list[str]] = []
    # For the last paragraph: number of characters, of open 「 and of open 『.
    length = single = double = 0
    open_before = False
    after_empty = True
    for line in text.split("\n"):
        line = line.strip()
        if open_before and line and not BULLET.match(line):
            between = " " if paragraphs[-1][-1][-1:].isascii() and line[:1].isascii() else ""
            paragraphs[-1].append(between + line)
        elif line:
            paragraphs.append([line])
            length = single = double = 0
        length += len(line)
        single += line.count("「") - line.count("」")
        double += line.count("『") - line.count("』")
        unclosed = length < LONGEST_QUOTE and (single > 0 or double > 0)
        open_before = bool(line) and (unclosed or _is_unfinished(line, after_empty))
        after_empty = not line
    return ["".join(parts) for parts in paragraphs]


def _is_unfinished(line: str, first: bool) -> bool:
    """Return whether a line continues on the next one; `first` says that no line of its paragraph is before it.

    A line with a number or bullet begins a paragraph, too.
    """
    if not line.endswith(UNFINISHED):
        return False
    heading = HEADING.fullmatch(line)
    return heading is None or not (first or heading[1])


def _split(line: str) -> list[str]:
    sentences: list[str] = []
    text = STRAIGHT_QUOTE.sub(r"‟\1", line) if '"' in line else line
    start = _skip_space(line, 0)
    inside = _enclosed(line) if BRACKET.search(line) else []
    run_end = 0
    for candidate in CANDIDATE.finditer(text):
        end = candidate.end()
        if inside:
            if _is_enclosed(line, start, candidate, inside):
                continue
            if run_end < end:
                run_end = _run_end(line, end, inside, "「『“（(" if candidate["closing"] else "（(")
        if not _ends_here(text, candidate, run_end):
            continue
        if sentence := line[start:end].strip():
            sentences.append(sentence)
        start = _skip_space(line, end)
    if rest := line[start:].strip():
        sentences.append(rest)
    return sentences


def _skip_space(line: str, at: int) -> int:
    """Return the position of the first character from `at` that is not whitespace, or `len(line)` if there is none."""
    if at < len(line) and not line[at].isspace():
        return at
    match = NOT_SPACE.search(line, at)
    return match.start() if match else len(line)


def _is_enclosed(line: str, start: int, candidate: re.Match[str], inside: list[tuple[int, int]]) -> bool:
    """Return whether the candidate is in brackets, or ends a remark in round brackets inside a sentence.

    The current sentence begins at `start`; `inside` holds the bracket pairs in the line, from `_enclosed`.
    """
    # The mark itself, or the last closing bracket in the candidate.
    last = candidate.start("closing") + len(candidate["closing"]) - 1
    # The last pair that opens before it.
    pair = bisect_right(inside, (last, -1)) - 1
    if pair < 0:
        return False
    opening, closing = inside[pair]
    return last < closing or (last == closing and line[opening] in "（(" and start < opening)


def _enclosed(line: str) -> list[tuple[int, int]]:
    """Return the (opening, closing) positions of the outermost bracket pairs, in order, ignoring unmatched brackets."""
    waiting: list[tuple[str, int]] = []
    pairs: list[tuple[int, int]] = []
    for bracket in BRACKET.finditer(line):
        if bracket[0] in OPEN:
            waiting.append((bracket[0], bracket.start()))
        elif (depth := _innermost(waiting, PARTNER[bracket[0]])) is not None:
            opening = waiting[depth][1]
            del waiting[depth:]
            # Pairs inside this one are not outermost.
            while pairs and pairs[-1][0] > opening:
                pairs.pop()
            pairs.append((opening, bracket.start()))
    return pairs


def _run_end(line: str, at: int, inside: list[tuple[int, int]], kinds: str) -> int:
    """Return where the bracket pairs end that follow each other directly from `at` and open with one of `kinds`."""
    pair = bisect_left(inside, (at, -1))
    while pair < len(inside) and inside[pair][0] == at and line[at] in kinds:
        at = inside[pair][1] + 1
        pair += 1
    return at


def _innermost(waiting: list[tuple[str, int]], kind: str) -> int | None:
    return next((i for i in range(len(waiting) - 1, max(-1, len(waiting) - 17), -1) if waiting[i][0] == kind), None)


def _ends_here(line: str, candidate: re.Match[str], run_end: int) -> bool:
    """Return whether the sentence ends at the candidate, which must be outside brackets.

    `run_end` is the end of the run of quotations and remarks behind a candidate that closes a quotation, or of the
    remarks behind another candidate.
    """
    mark, at, end = candidate["mark"], candidate.start(), candidate.end()
    if end == len(line):
        return True
    if len(mark) > 2 and mark[0] in ".．":
        return _ellipsis_ends(line, candidate)
    if candidate["closing"]:
        # In 「はい。」「はい。」と言う, the end of the run decides for each quotation in it.
        goes_on = GOES_ON_AFTER_MARK if run_end > end and line[run_end - 1] in "）)" else GOES_ON_AFTER_QUOTE
        return not goes_on.match(line, max(end, run_end))
    if mark[-1] in ".．":
        return _period_ends(line[max(0, at - 8) : at], line[end : end + 8])
    after = max(end, run_end)
    if line[after : after + 1] in AFTER_NAME_BEGINS and _ends_name(line, at, end, after):
        return False
    if mark[-1] == "。":
        return True
    # A mark inside a name: Yahoo!ニュース.
    before = line[max(0, at - 1) : at]
    if before.isascii() and before.isalnum() and not line[end].isspace():
        return False
    return not GOES_ON_AFTER_MARK.match(line, end)


def _ends_name(line: str, at: int, end: int, after: int) -> bool:
    """Return whether the mark in line[at:end] is the last letter of a name in the middle of a sentence.

    The sentence goes on at `after`, behind a remark such as the reading of the name: モーニング娘。（むすめ）は.
    """
    particle = AFTER_NAME.match(line, after)
    if particle is None:
        return False
    return (after == end and bool(particle[1])) or NAME_END.search(line, max(0, at - 8), at) is not None


def _ellipsis_ends(line: str, candidate: re.Match[str]) -> bool:
    """Return whether the sentence ends at a candidate that is an ellipsis.

    It ends in 終わりました．．．次は and 'He left... Then', but not in えーと．．．次, 「えーと．．．」次 or 'he
    said... well'.
    """
    if candidate["closing"] or GOES_ON_AFTER_QUOTE.match(line, candidate.end()):
        return False
    at, after = candidate.start(), line[candidate.end() : candidate.end() + 8]
    return POLITE_END.search(line, max(0, at - 8), at) is not None or (
        after[0].isspace() and after.lstrip()[:1].isupper()
    )


def _period_ends(before: str, after: str) -> bool:
    """Return whether the sentence ends at a single period, given the text before and after it.

    The period ends the sentence in であった．これは and 'end. Next', but not in 3.14, a.b@example.jp, Mr. Smith, U.S.
    or file.txt.
    """
    if JAPANESE.match(before[-1:]) or before[-1:] in CLOSE:
        return not after[0].isdigit()
    if ABBREVIATION.search(before) or not before[-1:].isalnum():
        return False
    if not after[0].isspace():
        # Normalization has removed the space between an English sentence and a Japanese one.
        return not before[-1:].isnumeric() and JAPANESE.match(after) is not None
    following = after.lstrip()[:1]
    return following.isupper() or JAPANESE.match(following) is not None or following in OPEN + '"‟'
