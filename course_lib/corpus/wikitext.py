"""Conversion of an article's wiki markup to plain text: its headings and paragraphs.

Links and templates are resolved from the innermost outward. Templates are not expanded: a template that displays words
is replaced by them (templates.py), and any other template is removed. Unbalanced markup affects only its own line,
never the whole article. The running time is linear in the length of the article.
"""

import re
from collections import Counter
from collections.abc import Callable
from html import unescape

from course_lib.corpus import scripts
from course_lib.corpus.literals import BAR, GUARD, protect, protect_references, restore, restore_yielded
from course_lib.corpus.report import characters
from course_lib.corpus.templates import expand

# Placeholder for a formula that needs TeX.
FORMULA = "〈数式〉"
# Levels of nested links or templates that are resolved; articles have fewer than ten.
DEEPEST = 20
# Levels of nested empty brackets that are removed.
LAYERS = 10

COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
# Opening tags whose content is replaced as a whole.
NOWIKI = re.compile(r"<(nowiki)\s*>", re.I)
EMPTY_NOWIKI = re.compile(r"<nowiki\s*/>", re.I)
# {{!}} is a vertical bar for links and tables, but divides no arguments.
BAR_TEMPLATE = re.compile(r"\{\{\s*!\s*\}\}")
MATH = re.compile(r"<(math|chem|ce)\b[^<>]*>", re.I)
REFERENCE = re.compile(r"<(ref|references)\b[^<>]*>", re.I)
SELF_CLOSED_REFERENCE = re.compile(r"<(?:ref|references)\b[^<>]*/>", re.I)
CODE = re.compile(r"<(syntaxhighlight|source|pre)\b([^<>]*)>", re.I)
BLOCKS = (
    "gallery|timeline|imagemap|score|mapframe|maplink|hiero|graph|categorytree|inputbox|includeonly|templatedata|"
    "templatestyles|section|rt|rp|style"
)
BLOCK = re.compile(rf"<({BLOCKS})\b[^<>]*>", re.I)
SELF_CLOSED_BLOCK = re.compile(rf"<(?:{BLOCKS})\b[^<>]*/>", re.I)
BREAK = re.compile(r"<(?:br|hr)\b[^<>]*>|</?(?:div|p|blockquote|poem|center|tr|ul|ol|li|dl|dd|dt)\b[^<>]*>", re.I)
TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>")
EXTERNAL = re.compile(r"\[(?:(?:https?:|ftp:)?//|mailto:|news:)[^\s\[\]<>]*+(?:[ 　]++([^\[\]\n]*+))?+\]", re.I)
URL = re.compile(r"(?:https?|ftp)://[\w!-;=?-Z^_`a-z|~%&]+", re.A)
LINK = re.compile(r"\[\[([^\[\]]*(?:(?:\[(?!\[)|\](?!\]))[^\[\]]*)*)\]\]")
FILE_LINK = re.compile(r"\s*(?:file|image|media|ファイル|画像|メディア|category|カテゴリ)\s*:", re.I)
INTERLANGUAGE = re.compile(r"\s*(?:[a-z]{2,3}(?:-[a-z]{2,})*|simple)\s*:(?=[^\s:])")
PROJECT = re.compile(r"(?::?(?:w|wikt|s|b|q|n|v|c|d|m|species|commons|wikipedia|[a-z]{2,3}(?:-[a-z]+)*)?:)+(?!:)", re.I)
TEMPLATE = re.compile(r"\{\{([^{}]*(?:(?:\{(?!\{)|\}(?!\}))[^{}]*)*)\}\}")
PARAMETER = re.compile(r"\{\{\{[^{}]*\}\}\}")
# {| and |} count only at the start of a line, <table> anywhere. Pages without <table> use the first, faster pattern.
WIKI_TABLE_EDGE = re.compile(r"^[ :;*#\t]*(\{\|)|^[ \t]*(\|\})(?!\})", re.M)
TABLE_EDGE = re.compile(WIKI_TABLE_EDGE.pattern + r"|<(table)\b[^<>]*>|</table\s*>", re.M | re.I)
HTML_TABLE = re.compile(r"</?table\b", re.I)
NEXT_HEADING = re.compile(r"^==", re.M)
MAGIC = re.compile(r"__(?:[A-Z]{3,}|[ぁ-んァ-ヶ一-龠]+)__")
QUOTES = re.compile(r"''+")
WORD = re.compile(r"\w")
BRACKET = re.compile(r"[（(]")
LIST_MARK = re.compile(r"(?:[*#:;]+[ 　]*)+")
# Traces of removed markup: empty brackets, a separator next to a bracket, doubled commas.
EMPTY = re.compile(r"[（(「『［][\s、，,;；:：・／/＝=]*[）)」』］]")
OPENING = re.compile(r"([（(])[\s、，,;；:：・／/]+")
# The repeat count is bounded, so that a page full of spaces takes no longer than any other page.
CLOSING = re.compile(r"[\s、，,;；・／/]{1,20}([）)])")
COMMAS = re.compile(r"、[、 　]*(?=[、。])|(?<=。)[、 　]+|(?<=[^。]。)。(?!。)|^[、。，]+", re.M)
# Python raises an error for integers of more than 4,300 digits; no code point has eight digits.
NO_CHARACTER = re.compile(r"&#\d{8,};?")
SPACES = re.compile(r"[ \t\u00a0\u200b]+(?=([、。」』）]?))")

Remover = Callable[[str], str]


def to_text(
    wikitext: str, title: str = "", drop_sections: frozenset[str] = frozenset(), removed: Counter[str] | None = None
) -> str:
    """Return the plain text of an article: one line per paragraph or list item, and an empty line before each heading.

    `title` is used for {{PAGENAME}}. Sections whose headings are in `drop_sections` are omitted. The number of
    characters removed for each kind of markup is added to `removed`.
    """
    passes: tuple[tuple[str, Remover], ...] = (
        ("comments", lambda t: COMMENT.sub("", t) if "<!--" in t else t),
        ("markup", _literals),
        ("formulas", lambda t: _contents(MATH, _formula, t)),
        ("references", lambda t: _contents(REFERENCE, _nothing, SELF_CLOSED_REFERENCE.sub("", t))),
        ("code", lambda t: _contents(CODE, _code, t)),
        ("galleries", lambda t: _contents(BLOCK, _nothing, SELF_CLOSED_BLOCK.sub("", t))),
        ("markup", lambda t: BREAK.sub("\n", t)),
        ("links", lambda t: EXTERNAL.sub(lambda m: m[1] or "", t)),
        ("links", lambda t: _resolve(LINK, _link, t)),
        ("templates", lambda t: _resolve(TEMPLATE, lambda c: expand(c, title), PARAMETER.sub("", t))),
        ("templates", restore_yielded),
        ("tables", _drop_tables),
        # Links that were inside templates.
        ("links", lambda t: _resolve(LINK, _link, t)),
        ("markup", scripts.resolve),
        ("markup", lambda t: QUOTES.sub("", MAGIC.sub("", TAG.sub("", t)))),
        ("links", lambda t: URL.sub("", t) if "://" in t else t),
        ("markup", _characters),
    )
    removed = Counter() if removed is None else removed
    text, left = wikitext, characters(wikitext)
    for reason, remove in passes:
        before, text = text, remove(text)
        if text is not before:
            removed[reason] += left - (left := characters(text))
    text = restore(_join_lines(_tidy(text), drop_sections))
    removed["sections and layout"] += left - characters(text)
    return text


def _contents(opening: re.Pattern[str], replace: Callable[[re.Match[str], str], str], text: str) -> str:
    """Replace each <tag>…</tag> with replace(opening tag, content).

    The running time is linear in the length of the text, because a missing closing tag is searched for only once per
    tag name.
    """
    kept: list[str] = []
    unclosed: set[str] = set()
    position = 0
    for tag in opening.finditer(text):
        name = tag[1].lower()
        if tag.start() < position or name in unclosed:
            continue
        closing = re.compile(rf"</{name}\s*>", re.I).search(text, tag.end())
        if closing is None:
            unclosed.add(name)
            continue
        kept += (text[position : tag.start()], replace(tag, text[tag.end() : closing.start()]))
        position = closing.end()
    return "".join(kept) + text[position:] if kept else text


def _resolve(innermost: re.Pattern[str], replace: Callable[[str], str], text: str) -> str:
    """Replace pairs of doubled brackets with replace(content), innermost first; unmatched brackets are left unchanged.

    Group 1 of `innermost`, a pair that contains no other pair, is the content.
    """
    for _ in range(DEEPEST):
        text, number = innermost.subn(lambda pair: replace(pair[1]), text)
        if not number:
            break
    return text


def _literals(text: str) -> str:
    """Replace signs that are shown, and not markup, by placeholders."""
    text = EMPTY_NOWIKI.sub(GUARD, _contents(NOWIKI, lambda _, content: protect(content), text))
    return BAR_TEMPLATE.sub(BAR, protect_references(text))


def _nothing(_tag: re.Match[str], _content: str) -> str:
    return ""


def _formula(_tag: re.Match[str], content: str) -> str:
    """Return the formula itself if it is readable as plain text, such as E = mc^2, or FORMULA if it needs TeX."""
    body = " ".join(content.split())
    return FORMULA if re.search(r"[\\{}]", body) else protect(body)


def _code(tag: re.Match[str], content: str) -> str:
    return protect(content) if "inline" in tag[2].lower() else "\n"


def _characters(text: str) -> str:
    """Replace character references twice, because `&amp;nbsp;` is common and always means a space."""
    for _ in range(2):
        if "&" in text:
            text = unescape(NO_CHARACTER.sub("", text))
    return text


def _link(content: str) -> str:
    """Return the text of a link: [[target|label]] → label; "" for a link to a file, category or another language."""
    target, bar, label = content.replace(BAR, "|").partition("|")
    if "{{" in target and "}}" not in target:
        # The bar belongs to a template in the target; the link is resolved after that template.
        return f"[[{content}]]"
    if ":" in target:
        if FILE_LINK.match(target) or INTERLANGUAGE.match(target):
            return ""
        if "::" not in target:
            target = PROJECT.sub("", target, count=1)
    if label and not label.isspace():
        return label
    if bar:
        # [[ローマ (曖昧さ回避)|]] shows the target without the bracketed part.
        bracket = BRACKET.search(target) if target.endswith((")", "）")) else None
        return target[: bracket.start()].rstrip() if bracket else target
    return target.lstrip("#").replace("_", " ").replace("#", "の")


def _drop_tables(text: str) -> str:
    """Remove the tables {| … |} and <table> … </table>, including nested ones.

    For an unclosed table, everything up to the next heading is removed.
    """
    kept: list[str] = []
    position = 0
    opened: list[str] = []
    # Number of open tables of each kind, so that an unmatched end does not cause a search in `opened`.
    numbers: Counter[str] = Counter()
    edges = TABLE_EDGE if HTML_TABLE.search(text) else WIKI_TABLE_EDGE
    for edge in edges.finditer(text):
        kind = "wiki" if edge[1] or edge[2] else "html"
        if edge[1] or (kind == "html" and edge[3]):
            if not opened:
                kept.append(text[position : edge.start()])
                position = edge.start()
            opened.append(kind)
            numbers[kind] += 1
        elif numbers[kind]:
            # A table of the other kind that is still open inside this one also ends here.
            while (inner := opened.pop()) != kind:
                numbers[inner] -= 1
            numbers[kind] -= 1
            if not opened:
                position = edge.end()
    if opened:
        heading = NEXT_HEADING.search(text, position)
        position = heading.start() if heading else len(text)
    kept.append(text[position:])
    return "".join(kept)


def _tidy(text: str) -> str:
    """Remove the traces of removed markup: empty brackets, lone separators, doubled commas and spaces."""
    # Removing an empty pair may leave the pair around it empty.
    for _ in range(LAYERS):
        text, number = EMPTY.subn("", text)
        if not number:
            break
    text = SPACES.sub(lambda m: "" if m[1] else " ", text)
    return COMMAS.sub("", CLOSING.sub(r"\1", OPENING.sub(r"\1", text)))


def _heading(line: str) -> tuple[int, str] | None:
    """Parse a heading: == words == → (2, "words"); None for any other line."""
    left, right = len(line) - len(line.lstrip("=")), len(line) - len(line.rstrip("="))
    level = min(left, right, len(line) // 2, 6)
    return (level, line[level:-level].strip()) if level else None


def _join_lines(text: str, drop_sections: frozenset[str]) -> str:
    """Join the lines of an article, leaving out list marks, empty sections and the sections in `drop_sections`."""
    lines: list[str] = []
    # Headings above the next line of text, outermost first.
    waiting: list[tuple[int, str]] = []
    # Level of the heading whose section is being dropped; 7 if there is none.
    dropped = 7
    for line in map(str.strip, text.splitlines()):
        if not line:
            continue
        if line[0] == "=" and (heading := _heading(line)):
            level, words = heading
            waiting = [entry for entry in waiting if entry[0] < level]
            if level <= dropped:
                dropped = level if words in drop_sections else 7
            if words and dropped == 7:
                waiting.append((level, words))
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
