"""From wiki markup to plain text: one article in, its paragraphs and headings out.

Brackets are resolved from the inside out: a pattern without brackets in it can only match an innermost pair, so replacing all of
them and repeating until nothing changes handles any nesting without a parser. It does not expand templates: it keeps the words of
those that carry words (TEMPLATES), and drops the rest. Unbalanced markup costs its own line, never the article.
"""

import re
from collections import Counter
from collections.abc import Callable
from html import unescape

FORMULA = "〈数式〉"  # stands for a formula that needs more than one line of text
LANGUAGES = {
    "en": "英", "fr": "仏", "de": "独", "it": "伊", "es": "西", "pt": "葡", "ru": "露", "la": "羅", "nl": "蘭", "zh": "中", "ko": "朝",
    "el": "希", "ar": "アラビア語", "tr": "トルコ語", "sa": "梵", "pl": "ポーランド語", "sv": "スウェーデン語", "vi": "ベトナム語",
}  # fmt: skip
# Templates that carry words, by the argument that holds them. The rest (infoboxes, notices, citations) is dropped.
FIRST = (
    "仮リンク 日本語版にない記事リンク ill2 link-en 要出典範囲 要検証範囲 疑問点範囲 独自研究範囲 nowrap nobr small smaller big large "
    "larger em strong bold italic u sub sup math mvar quote quotation blockquote cquote 引用 ipa unicode jis2004フォント jis90フォント "
    "補助漢字フォント cp932フォント 拡張漢字 拡張漢字フォント jis2004 visible anchor vanchor val num 漢字 縦書き ruby-ja 下線 太字 訳語疑問点範囲"
)
SECOND = "lang color fontcolor fontsize"
READING = "読み仮名 読み仮名_ruby不使用 読み仮名 ruby不使用 ruby ルビ ふりがな 振り仮名"

COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
NOWIKI = re.compile(r"<nowiki>(.*?)</nowiki>|<nowiki\s*/>", re.S | re.I)
LITERAL = str.maketrans(
    "[]{}<>|'", "［］｛｝＜＞｜’"
)  # what nowiki shows as it stands can no longer be taken for markup
MATH = re.compile(r"<(math|chem|ce)\b[^<>]*>(.*?)</\1>", re.S | re.I)
REFERENCE = re.compile(r"<(ref|references)\b[^<>]*>.*?</\1\s*>", re.S | re.I)
SELF_CLOSED_REFERENCE = re.compile(r"<(?:ref|references)\b[^<>]*/>", re.I)
CODE = re.compile(r"<(syntaxhighlight|source|pre)\b([^<>]*)>(.*?)</\1\s*>", re.S | re.I)
BLOCKS = (
    "gallery|timeline|imagemap|score|mapframe|maplink|hiero|graph|categorytree|inputbox|includeonly|templatedata|templatestyles|"
    "section|rt|rp|style"
)
BLOCK = re.compile(rf"<({BLOCKS})\b[^<>]*>.*?</\1\s*>", re.S | re.I)
SELF_CLOSED_BLOCK = re.compile(rf"<(?:{BLOCKS})\b[^<>]*/>", re.I)
MANY_TAGS = 2000
CLOSING_TAG = re.compile(r"</([a-z]+)\s*>", re.I)
BREAK = re.compile(r"<(?:br|hr)\b[^<>]*>|</?(?:div|p|blockquote|poem|center|table|tr|ul|ol|li|dl|dd|dt)\b[^<>]*>", re.I)
TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>")
EXPONENT = re.compile(r"<sup>\s*([-+−–]?\d{1,4})\s*</sup>|\{\{sup\|([-+−–]?\d{1,4})\}\}", re.I)
RAISED = str.maketrans("0123456789-−–+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁻⁺")  # 10<sup>3</sup> must not become 103
EXTERNAL = re.compile(r"\[(?:(?:https?:|ftp:)?//|mailto:|news:)[^\s\[\]<>]*(?:[ 　]+([^\[\]\n]*))?\]", re.I)
URL = re.compile(r"(?:https?|ftp)://[\w!-;=?-Z^_`a-z|~%&]+", re.A)
LINK = re.compile(r"\[\[([^\[\]]*(?:(?:\[(?!\[)|\](?!\]))[^\[\]]*)*)\]\]")
FILE_LINK = re.compile(r"\s*(?:file|image|media|ファイル|画像|メディア|category|カテゴリ)\s*:", re.I)
INTERLANGUAGE = re.compile(r"\s*(?:[a-z]{2,3}(?:-[a-z]{2,})*|simple)\s*:(?=[^\s:])")
PROJECT = re.compile(r"(?::?(?:w|wikt|s|b|q|n|v|c|d|m|species|commons|wikipedia|[a-z]{2,3}(?:-[a-z]+)*)?:)+(?!:)", re.I)
TEMPLATE = re.compile(r"\{\{([^{}]*(?:(?:\{(?!\{)|\}(?!\}))[^{}]*)*)\}\}")
PARAMETER = re.compile(r"\{\{\{[^{}]*\}\}\}")
TABLE_EDGE = re.compile(r"^[ :;*#\t]*\{\||^[ \t]*\|\}(?!\})", re.M)
NAMED = re.compile(r"\s*([^\s=<>\[\]]+)\s*=(.*)", re.S)
MAGIC = re.compile(r"__(?:[A-Z]{3,}|[ぁ-んァ-ヶ一-龠]+)__")
QUOTES = re.compile(r"''+")
HEADING = re.compile(r"^(={1,6})\s*(.*?)\s*\1\s*$")
WORD = re.compile(r"\w")
LIST_MARK = re.compile(r"(?:[*#:;]+[ 　]*)+")
# what removal leaves behind: empty brackets, a separator beside a bracket, doubled commas
EMPTY = re.compile(r"[（(「『［][\s、，,;；:：・／/＝=]*[）)」』］]")
OPENING = re.compile(r"([（(])[\s、，,;；:：・／/]+")
CLOSING = re.compile(r"[\s、，,;；・／/]{1,20}([）)])")  # bounded: a page of spaces must not take hours
COMMAS = re.compile(r"、[、 　]*(?=[、。])|(?<=。)[、 　]+|(?<=[^。]。)。(?!。)|^[、。，]+", re.M)
SPACES = re.compile(r"[ \t\u00a0\u200b]+(?=([、。」』）]?))")

Remover = Callable[[str], str]


def to_text(
    wikitext: str, title: str = "", drop_sections: frozenset[str] = frozenset(), removed: Counter[str] | None = None
) -> str:
    """The plain text of one article: a line per paragraph or list item, an empty line before each heading.

    `drop_sections` names headings whose sections are left out; `removed` counts the characters taken away, by reason.
    """
    passes: tuple[tuple[str, Remover], ...] = (
        ("comments", lambda t: COMMENT.sub("", t) if "<!--" in t else t),
        ("markup", _literals),
        ("formulas", lambda t: _pairs(MATH, _formula, t)),
        ("references", lambda t: _pairs(REFERENCE, "", SELF_CLOSED_REFERENCE.sub("", t))),
        ("code", lambda t: _pairs(CODE, _code, t)),
        ("galleries", lambda t: _pairs(BLOCK, "", SELF_CLOSED_BLOCK.sub("", t))),
        ("markup", lambda t: BREAK.sub("\n", EXPONENT.sub(lambda m: (m[1] or m[2]).translate(RAISED), t))),
        ("links", lambda t: EXTERNAL.sub(lambda m: m[1] or "", t)),
        ("links", lambda t: _innermost(LINK, _link, t)),
        ("templates", lambda t: _innermost(TEMPLATE, lambda m: _template(m, title), PARAMETER.sub("", t))),
        ("tables", _drop_tables),
        ("links", lambda t: _innermost(LINK, _link, t)),  # those that templates were hiding
        ("markup", lambda t: QUOTES.sub("", MAGIC.sub("", TAG.sub("", t)))),
        ("links", lambda t: URL.sub("", t) if "://" in t else t),
    )
    text = wikitext
    for reason, remove in passes:
        before = len(text)
        text = remove(text)
        if removed is not None:
            removed[reason] += before - len(text)
    text = (
        unescape(unescape(text)) if "&" in text else text
    )  # twice: `&amp;nbsp;` is common, and shown as a space by nobody
    before = len(text)
    text = _join_lines(_tidy(text), drop_sections)
    if removed is not None:
        removed["sections and layout"] += before - len(text)
    return text


def _pairs(pattern: re.Pattern[str], replacement: str | Callable[[re.Match[str]], str], text: str) -> str:
    """Replaces <tag>…</tag>. On a page with very many tags only up to the last closing one of its kind: openings behind it, each
    searching to the end in vain, would take hours."""
    last = len(text)
    if text.count("<") > MANY_TAGS:
        closings = (c for c in CLOSING_TAG.finditer(text) if pattern.match(f"<{c[1]}></{c[1]}>"))
        last = max((closing.end() for closing in closings), default=0)
    return pattern.sub(replacement, text[:last]) + text[last:]


def _innermost(pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str], text: str) -> str:
    """Replaces innermost pairs until none is left; each round removes one level of nesting."""
    found = 1
    while found:
        text, found = pattern.subn(replace, text)
    return text


def _literals(text: str) -> str:
    return (
        NOWIKI.sub(lambda m: (m[1] or "").translate(LITERAL), text)
        if "</nowiki>" in text
        else text.replace("<nowiki/>", "")
    )


def _formula(match: re.Match[str]) -> str:
    """A formula that reads as text stays (E = mc^2); one that needs TeX becomes a placeholder."""
    body = " ".join(match[2].split())
    return FORMULA if re.search(r"[\\{}]", body) else body.translate(LITERAL)


def _code(match: re.Match[str]) -> str:
    return match[3].translate(LITERAL) if "inline" in match[2].lower() else "\n"


def _link(match: re.Match[str]) -> str:
    """[[target|label]] → label; files, categories and links to other languages → nothing."""
    target, bar, label = match[1].partition("|")
    if ":" in target:
        if FILE_LINK.match(target) or INTERLANGUAGE.match(target):
            return ""
        if "::" not in target:
            target = PROJECT.sub("", target, count=1)
    if label and not label.isspace():
        return label
    if bar:  # [[ローマ (曖昧さ回避)|]] shows the target without its brackets
        return re.sub(r"\s*[（(].*[）)]$", "", target)
    return target.lstrip("#").replace("_", " ").replace("#", "の")


def _template(match: re.Match[str], title: str) -> str:
    """The words a template shows, if it is one of those that carry words."""
    name, *arguments = match[1].split("|")
    name = name.strip().lower()
    if (shown := _SIMPLE.get(name)) is not None:
        return shown
    if name == "pagename":
        return title
    kept = _KEPT.get(name) or (_language if name.startswith("lang-") else None)
    if kept is None:
        return ""
    positional, named = [], {}
    for argument in arguments:
        if (pair := NAMED.match(argument)) and "://" not in pair[1]:
            named[pair[1]] = pair[2].strip()
        else:
            positional.append(argument.strip())
    positional += [named[str(i)] for i in range(len(positional) + 1, 10) if str(i) in named]
    return kept(name, positional, named)


def _argument(index: int) -> Callable[[str, list[str], dict[str, str]], str]:
    def take(_name: str, positional: list[str], named: dict[str, str]) -> str:
        return named.get("label") or (positional[index] if len(positional) > index else "")

    return take


def _last(_name: str, positional: list[str], _named: dict[str, str]) -> str:
    return positional[-1] if positional else ""


def _language(name: str, positional: list[str], _named: dict[str, str]) -> str:
    """{{lang-en|Mount Fuji}} → 英: Mount Fuji, as the encyclopaedia shows it."""
    label = LANGUAGES.get(name[5:7], "")
    words = positional[0] if positional else ""
    return f"{label}: {words}" if label and words else words


def _reading(_name: str, positional: list[str], _named: dict[str, str]) -> str:
    return f"{positional[0]}（{positional[1]}）" if len(positional) > 1 else "".join(positional)


def _quantity(_name: str, positional: list[str], _named: dict[str, str]) -> str:
    """{{convert|3776|m}} → 3776 m, without the conversions."""
    return " ".join(positional[:2])


_SIMPLE = {"!": "|", "=": "=", "·": "・", "•": "・", "ndash": "–", "mdash": "—", "spaces": " ", "nbsp": " ", "'": "’"}
_KEPT: dict[str, Callable[[str, list[str], dict[str, str]], str]] = (
    {name: _argument(0) for name in FIRST.split()}
    | {name: _argument(1) for name in SECOND.split()}
    | dict.fromkeys(READING.split(), _reading)
    | {
        "transl": _last,
        "font color": _argument(1),
        "visible anchor": _argument(0),
        "convert": _quantity,
        "cvt": _quantity,
    }
)


def _drop_tables(text: str) -> str:
    """Removes {| … |}, nested ones included; a table that never ends ends at the next heading."""
    kept, depth, position = [], 0, 0
    for edge in TABLE_EDGE.finditer(text):
        if edge[0].endswith("{|"):
            if depth == 0:
                kept.append(text[position : edge.start()])
                position = edge.start()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                position = edge.end()
    if depth:
        heading = re.compile(r"^==", re.M).search(text, position)
        position = heading.start() if heading else len(text)
    kept.append(text[position:])
    return "".join(kept)


def _tidy(text: str) -> str:
    """Removes what the removals left: empty brackets, lone separators, doubled commas and spaces."""
    found = 1
    while found:  # an emptied pair inside another empties that one too
        text, found = EMPTY.subn("", text)
    text = SPACES.sub(lambda m: "" if m[1] else " ", text)
    return COMMAS.sub("", CLOSING.sub(r"\1", OPENING.sub(r"\1", text)))


def _join_lines(text: str, drop_sections: frozenset[str]) -> str:
    """Lines without list marks; headings only where something stands under them and their section is wanted."""
    lines: list[str] = []
    waiting: list[tuple[int, str]] = []  # headings above the next line of text, outermost first
    dropped = 7  # level of the heading whose section is being left out; 7 = none
    for line in map(str.strip, text.split("\n")):
        if not line:
            continue
        if line[0] == "=" and (heading := HEADING.match(line)):
            level = len(heading[1])
            waiting = [entry for entry in waiting if entry[0] < level]
            if level <= dropped:
                dropped = level if heading[2] in drop_sections else 7
            if heading[2] and dropped == 7:
                waiting.append((level, heading[2]))
            continue
        if dropped < 7 or line[0] in "|!" or line[:2] in ("{|", "}}") or line.startswith("----"):
            continue
        if line[0] in "*#:;" and (mark := LIST_MARK.match(line)):
            line = line[mark.end() :]
        if not WORD.search(line.replace(FORMULA, "")):
            continue
        lines += [part for _, title in waiting for part in ("", title)]
        waiting = []
        lines.append(line)
    return "\n".join(lines).replace("[[", "").replace("]]", "").replace("{{", "").replace("}}", "").strip()
