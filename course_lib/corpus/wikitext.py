"""Conversion of an article's wiki markup to plain text: its headings and paragraphs.

Links and templates are resolved from the innermost outward. The source of a template is not read: templates.py
knows what those that display words show, and any other template is removed. Unbalanced markup affects only its own
line, never the whole article. The running time is linear in the length of the article.

A gap, a character that no text has (GAP), is left where words are removed. Only brackets and separators next to a gap
are tidied, because all others were written by the author. The gaps are removed at the end and are not counted.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from html import unescape
from html.entities import html5
from itertools import pairwise
from pathlib import Path

from course_lib.corpus import superscripts
from course_lib.corpus.literals import BAR, GUARD, protect, protect_references, restore, restore_yielded
from course_lib.corpus.report import characters
from course_lib.corpus.templates import expand

# Names that MediaWiki and Wikipedia give a meaning, in wikitext.tsv: kind → names.
# - languages: the codes of all Wikipedias (https://github.com/wikimedia/operations-mediawiki-config, langlist)
# - silent: the namespaces whose links display no text (MessagesJa.php of https://github.com/wikimedia/mediawiki)
# - wiki tags: those of HTML that MediaWiki uses (Sanitizer.php), and those of MediaWiki and Wikipedia's extensions
# - html tags: all others of HTML (https://html.spec.whatwg.org/multipage/indices.html), the obsolete ones included
# - switches: https://www.mediawiki.org/wiki/Help:Magic_words; the Japanese names are from MessagesJa.php
NAMES = dict(row.split("\t") for row in Path(__file__).with_suffix(".tsv").read_text(encoding="utf8").splitlines())
LANGUAGES = frozenset(NAMES["languages"].split("|"))
SILENT = frozenset(NAMES["silent"].split("|"))
WIKI_TAGS = frozenset(NAMES["wiki tags"].split("|"))
HTML_TAGS = frozenset(NAMES["html tags"].split("|"))

# Placeholder for a formula that needs TeX.
FORMULA = "〈数式〉"
# Levels of nested links or templates that are resolved; articles have fewer than ten.
DEEPEST = 20
# Levels of nested empty brackets that are removed.
LAYERS = 10
# Unicode reserves the noncharacters U+FDD0 to U+FDEF for internal uses such as these two
# (https://www.unicode.org/faq/private_use.html). If the text itself has one of the two, a third one stands for it
# meanwhile.
NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
# GAP stands where words were removed, PARAMETERS_END behind a template whose parameters fill several lines.
GAP, PARAMETERS_END = NONCHARACTERS[:2]

# Behind the name of a tag: attributes as in HTML, where some have no value
# (https://html.spec.whatwg.org/multipage/indices.html). Stray signs between them are common mistakes.
ATTRIBUTE = (
    r"""(?:[A-Za-z_:][A-Za-z0-9_:.-]*+\s*+=\s*+(?:"[^"<>]*+"?|'[^'<>]*+'?|[^\s<>"']++)?"""
    r"|compact|inline|itemscope|noshade|nowrap|reversed)"
)
STRAY_SIGNS = rf"[\s/\\\"';,{GAP}]*+"
ATTRIBUTES = rf"(?:[\s/{GAP}]{STRAY_SIGNS}(?:{ATTRIBUTE}{STRAY_SIGNS})*+)?+"
# Behind the name of a tag of an extension: any attributes, but no empty line.
ANY_ATTRIBUTES = r"(?=[\s/>])[^<>\n]*+(?:\n(?![ \t]*+\n)[^<>\n]*+)*+"
BLANK_LINE = re.compile(r"\n[ \t]*\n")

COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
# Opening tags whose content is replaced as a whole.
NOWIKI = re.compile(r"<(nowiki)\s*>", re.I)
EMPTY_NOWIKI = re.compile(r"<nowiki\s*/>", re.I)
# {{!}} is a vertical bar for links and tables, but divides no arguments.
BAR_TEMPLATE = re.compile(r"\{\{\s*!\s*\}\}")
MATH = re.compile(rf"<(math|chem|ce){ANY_ATTRIBUTES}>", re.I)
REFERENCE = re.compile(rf"<(ref|references){ANY_ATTRIBUTES}>", re.I)
SELF_CLOSED_REFERENCE = re.compile(rf"<(?:ref|references){ANY_ATTRIBUTES}(?<=/)>", re.I)
CODE = re.compile(rf"<(syntaxhighlight|source|pre)({ANY_ATTRIBUTES})>", re.I)
BLOCKS = (
    "gallery|timeline|imagemap|score|mapframe|maplink|hiero|graph|categorytree|inputbox|includeonly|templatedata|"
    "templatestyles|section|style"
)
BLOCK = re.compile(rf"<({BLOCKS}){ANY_ATTRIBUTES}>", re.I)
SELF_CLOSED_BLOCK = re.compile(rf"<(?:{BLOCKS}){ANY_ATTRIBUTES}(?<=/)>", re.I)
# The reading above a word. HTML lets </rt> and </rp> be left out
# (https://html.spec.whatwg.org/multipage/text-level-semantics.html#the-rt-element).
READING = re.compile(
    rf"<(?:rtc?|rp){ATTRIBUTES}>(?:[^\n]|\n(?![ \t]*+\n))*?(?:</(?:rtc?|rp)\s*>|(?=<(?:rtc?|rp|rb|/ruby)\b))", re.I
)
# HTML elements that start a new line.
LINES = "div|p|blockquote|poem|center|tr|ul|ol|li|dl|dd|dt"
BREAK = re.compile(rf"</?(?:br|hr|{LINES}){ATTRIBUTES}>", re.I)
HEADING = re.compile(rf"<(h[1-6]){ATTRIBUTES}>", re.I)
HIDING = re.compile(r"display\s*+:\s*+none|visibility\s*+:\s*+hidden", re.I)
ELEMENT_EDGE = re.compile(rf"<(/?)([A-Za-z][A-Za-z0-9]*)({ATTRIBUTES})>|{BLANK_LINE.pattern}")
BLOCK_ELEMENTS = frozenset([*LINES.split("|"), "table", "td", "th"])
# Tags without an end tag.
VOID = frozenset(("br", "hr", "wbr"))
TAG = re.compile(rf"</?([A-Za-z][A-Za-z0-9]*){ATTRIBUTES}>")
# A <sup> or <sub>, and gaps next to such tags, which would separate a number from its exponent.
HAS_SUP_SUB = re.compile("<[Ss][Uu][BbPp]")
SUP_SUB_EDGE = re.compile(rf"{GAP}+(?=</?[Ss][Uu][BbPp]\b)|(<[Ss][Uu][BbPp]>){GAP}+")
EXTERNAL = re.compile(r"\[(?:(?:https?:|ftp:)?//|mailto:|news:)[^\s\[\]<>]*+(?:[ 　]++([^\[\]\n]*+))?+\]", re.I)
# A closing bracket without an opening one is not part of an address, nor is punctuation at its end; MediaWiki has
# nearly the same rule (Parser::makeFreeExternalLink).
URL = re.compile(r"(?:https?|ftp)://(?:[\w!-'*-;=?-Z^_`a-z|~%&]++|\([\w!-'*-;=?-Z^_`a-z|~%&]*+\)?+)++", re.A)
BEHIND_URL = ",;.:!?"
LINK = re.compile(r"\[\[([^\[\]]*(?:(?:\[(?!\[)|\](?!\]))[^\[\]]*)*)\]\]")
# MediaWiki ignores spaces, underscores and direction marks around the parts of a title.
AROUND_TITLE = " _\t\n\u3000\u200e\u200f\u202a\u202b\u202c\u202d\u202e"
# [[…|]]: the part of the target before its first colon (Parser::pstPass2).
PIPE_PREFIX = re.compile(r":?[ \w-]*:")
TEMPLATE = re.compile(r"\{\{([^{}]*(?:(?:\{(?!\{)|\}(?!\}))[^{}]*)*)\}\}")
PARAMETER = re.compile(r"\{\{\{([^{}]*)\}\}\}")
# A line `| key = value` of a template.
PARAMETER_LINE = re.compile(r"\|[\w \t・/（）()-]+=(?:[^|]*$|.*(?:\{\{|\[\[))")
NEXT_PARAMETER = re.compile(rf"\n[ \t]*[|{BAR}][^|=\n]*=")
# Start of a value that is not closed: it swallows the end of the template around it.
VALUE_START = re.compile(rf"^[ \t{GAP}]*(?:(\|)[^|=\n]*=|\{{\{{)", re.M)
# What is left of that template: its name, and the parameters before the value.
BROKEN_TEMPLATE = re.compile(
    rf"^[ \t{GAP}]*\{{\{{[^{{}}|\n]*\n(?=[ \t]*[|{PARAMETERS_END}])(?:[ \t]*\|(?![^\n]*\}}\}})[^\n]*\n)*", re.M
)
# {| and |} count only at the start of a line, <table> anywhere. Pages without <table> use the first, faster pattern.
WIKI_TABLE_EDGE = re.compile(rf"^[ :;*#\t{GAP}]*(\{{\|)|^[ \t{GAP}]*(\|\}})(?!\}})", re.M)
TABLE_EDGE = re.compile(rf"{WIKI_TABLE_EDGE.pattern}|<(table){ATTRIBUTES}>|</table{ATTRIBUTES}>", re.M | re.I)
ONLY_ATTRIBUTES = re.compile(rf"{STRAY_SIGNS}(?:{ATTRIBUTE}{STRAY_SIGNS})*+")
# The cells of a table, up to an empty line that no other cell follows.
CELLS = re.compile(
    rf"(?:\n(?:[ \t{GAP}]*+\n)*+[ \t{GAP}]*+(?:[|!]|<[Tt][DdHh])[^\n]*+"
    rf"(?:\n(?![ \t{GAP}]*+\n|{GAP}*==)[^\n]++)*+)++"
)
# Rows and the end of a table that a template begins; all lines that begin with | or ! are cells of it.
ROW = re.compile(rf"^[ \t{GAP}]*\|-+[ \t{GAP}]*(?:[A-Za-z-]+[ \t]*=.*)?$", re.M)
TABLE_END = re.compile(rf"^[ \t{GAP}]*\|\}}(?!\}})", re.M)
CELL = re.compile(rf"^[ \t{GAP}]*[|!].*", re.M)
HTML_TABLE = re.compile(r"</?table\b", re.I)
NEXT_HEADING = re.compile(rf"^{GAP}*==", re.M)
MAGIC = re.compile(
    rf"__(?:(?i:{NAMES['switches in any case']})|{NAMES['switches']}|{NAMES['japanese switches']})__"
    rf"|＿＿(?:{NAMES['japanese switches']})＿＿"
)
QUOTES = re.compile(r"''+")
# Quotes or a tag in front of a sign that would begin a list: there the sign is text. MediaWiki removes the tags of
# inclusion before it looks for lists (https://www.mediawiki.org/wiki/Transclusion).
FORMATTED_START = re.compile(
    rf"^[*#:; {GAP}]*+(?:''++|<(?!noinclude|onlyinclude)[A-Za-z]++{ATTRIBUTES}>)++(?=[*#:;])", re.M
)
WORD = re.compile(r"\w")
# What unbalanced markup leaves of a line, or removed words in the line before.
ONLY_MARKUP = re.compile(r"[\s\[\]{}|!=、。，．,.-]*")
BRACKET = re.compile(r"[（(]")
# Signs behind a space are list markers only if a space follows them, unlike those in `* :-)` and `* #define`.
LIST_MARKER = re.compile(r"[*#:;]++(?:[ 　]++[*#:;]++(?=[ 　]))*+[ 　]*+")
# What can stand at the start of a line without a partner: a rule, the end of a template or of a table.
LINE_START = re.compile(r"(?:-{4,}|\}{2,}|\|\})[ 　]*")
# Traces of removed markup, all next to a gap: empty brackets, a separator next to a bracket, doubled commas.
INSIDE_EMPTY = rf"[\s、，,;；:：・／/＝=]*+{GAP}[\s、，,;；:：・／/＝={GAP}]*+"
EMPTY = re.compile(rf"[（(「『［<〈《【〔]{INSIDE_EMPTY}[）)」』］>〉》】〕]")
OPENING = re.compile(rf"([（(])[\s、，,;；:：・／/]*+{GAP}[\s、，,;；:：・／/{GAP}]*+")
# Separators that can stand next to a gap, and those of them that are left over in front of a closing bracket and at
# the start of a line.
SEPARATORS = "、，。．,;；・／/ \t\u00a0\u3000"
BEFORE_CLOSING = "、，,;；・／/ \t\n\u00a0\u3000"
AT_LINE_START = "、。，． \t\u00a0\u3000"
# A line of which no word is left.
WORDLESS_LINE = re.compile(rf"^[^\w\n{GAP}]*+{GAP}[^\w\n]*+$", re.M)
COMMAS = re.compile(r"[、，][、，\s]*(?=[、，。．])|(?<=[。．])[、，\s]+|(?<=(?<![。．])[。．])[。．](?![。．])")
# Spaces inside round full-width brackets, line breaks inside any. A repeat count is bounded, so that a page full of
# line breaks takes no longer than any other page.
AFTER_OPENING = re.compile(r"（\s+|[(「『［]\s*\n\s*")
BREAK_BEFORE_CLOSING = re.compile(r"\n\s{0,20}(?=[）)」』］])")
AFTER_STOP = re.compile(r"。[ \u3000]+")
ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
# Python raises an error for integers of more than 4,300 digits; no code point has eight digits.
NO_CHARACTER = re.compile(r"&#\d{8,};?")
SPACES = re.compile(r"[ \t\u00a0]+(?=([、。」』）]?))")

Remover = Callable[[str], str]


def to_text(
    wikitext: str, title: str = "", drop_sections: frozenset[str] = frozenset(), removed: Counter[str] | None = None
) -> str:
    """Return the plain text of an article: one line per paragraph or list item, and an empty line before each heading.

    `title` is used for {{PAGENAME}}. Sections whose headings are in `drop_sections` are omitted. The number of
    characters removed for each kind of markup is added to `removed`.
    """
    passes: tuple[tuple[str, Remover], ...] = (
        ("comments", lambda t: COMMENT.sub(GAP, t) if "<!--" in t else t),
        ("markup", _literals),
        ("formulas", lambda t: _contents(MATH, _formula, t)),
        ("references", lambda t: _contents(REFERENCE, _nothing, SELF_CLOSED_REFERENCE.sub(GAP, t))),
        ("code", lambda t: _contents(CODE, _code, t)),
        ("galleries", lambda t: _contents(BLOCK, _nothing, SELF_CLOSED_BLOCK.sub(GAP, t))),
        ("markup", lambda t: _drop_hidden(READING.sub("", t))),
        ("markup", lambda t: BREAK.sub(_break, t)),
        ("links", lambda t: EXTERNAL.sub(lambda m: m[1] or GAP, t)),
        ("links", lambda t: _resolve(LINK, _link, t)),
        ("templates", lambda t: _templates(t, title)),
        ("templates", restore_yielded),
        ("tables", _drop_tables),
        # Links that were inside templates.
        ("links", lambda t: _resolve(LINK, _link, t)),
        ("markup", _superscripts),
        ("markup", _drop_formatting),
        ("links", lambda t: URL.sub(_address, t) if "://" in t else t),
        ("markup", _characters),
    )
    removed = Counter() if removed is None else removed
    in_text = [sign for sign in (GAP, PARAMETERS_END) if sign in wikitext]
    unused = [sign for sign in NONCHARACTERS[2:] if sign not in wikitext] if in_text else []
    stand_ins = list(zip(in_text, unused, strict=False))
    text, left = wikitext, characters(wikitext)
    for sign, stand_in in stand_ins:
        text = text.replace(sign, stand_in)
    for reason, remove in passes:
        before, text = text, remove(text)
        if text is not before:
            remaining = characters(text) - text.count(GAP)
            removed[reason] += left - remaining
            left = remaining
    text = restore(_join_lines(_tidy(text), drop_sections))
    for sign, stand_in in stand_ins:
        text = text.replace(stand_in, sign)
    removed["sections and layout"] += left - characters(text)
    return text


def _contents(opening: re.Pattern[str], replace: Callable[[re.Match[str], str], str], text: str) -> str:
    """Replace each <tag>…</tag> with replace(opening tag, content).

    The running time is linear in the length of the text, because a missing closing tag is searched for only once per
    tag name.
    """
    parts: list[str] = []
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
        parts += (text[position : tag.start()], replace(tag, text[tag.end() : closing.start()]))
        position = closing.end()
    return "".join(parts) + text[position:] if parts else text


def _resolve(innermost: re.Pattern[str], replace: Callable[[str], str], text: str) -> str:
    """Replace pairs of doubled brackets with replace(content), innermost first; unmatched brackets are left unchanged.

    Group 1 of `innermost`, a pair that contains no other pair, is the content.
    """
    for _ in range(DEEPEST):
        text, number = innermost.subn(lambda pair: replace(pair[1]), text)
        if not number:
            break
    return text


def _arguments(content: str) -> str:
    """Remove the gaps at both ends of each argument, so that they are no part of a name or a number."""
    return "|".join(argument.strip(f" \t\n{GAP}") for argument in content.split("|"))


def _templates(text: str, title: str) -> str:
    """Replace templates by the words they display, and parameters by their defaults: {{{1|word}}} → word."""

    def words(content: str) -> str:
        end = PARAMETERS_END if "\n" in content and NEXT_PARAMETER.search(content) else ""
        displayed = expand(_arguments(content) if GAP in content else content, title)
        return (displayed or GAP) + end

    if "{{{" in text:
        text = _resolve(PARAMETER, lambda content: content.partition("|")[2] or GAP, text)
    text = _resolve(TEMPLATE, words, text)
    text = _drop_swallowing(text)
    text = BROKEN_TEMPLATE.sub("", text) if "{{" in text else text
    return text.replace(PARAMETERS_END, "")


def _drop_swallowing(text: str) -> str:
    """Remove each value of a template that swallowed the end of the template; what follows that end stays."""
    *pieces, last = text.split(PARAMETERS_END)
    kept: list[str] = []
    for piece in pieces:
        # The last value in the paragraph; one behind the name of the template, only on the same line.
        values = list(VALUE_START.finditer(piece, piece.rfind("\n\n") + 1))
        if values and (values[-1][1] or "\n" not in piece[values[-1].start() :]):
            piece = piece[: values[-1].start()]
        kept += (piece, PARAMETERS_END)
    return "".join(kept) + last


def _literals(text: str) -> str:
    """Replace signs that are shown, and not markup, by placeholders."""
    text = EMPTY_NOWIKI.sub(GUARD, _contents(NOWIKI, lambda _, content: protect(content), text))
    return BAR_TEMPLATE.sub(BAR, protect_references(text))


def _nothing(_tag: re.Match[str], _content: str) -> str:
    return GAP


def _is_tag(tag: re.Match[str]) -> bool:
    """Return False if there is an empty line inside the tag, which is then text between two less-than signs."""
    return "\n" not in tag[0] or not BLANK_LINE.search(tag[0])


def _break(tag: re.Match[str]) -> str:
    return f"\n{GAP}" if _is_tag(tag) else tag[0]


def _tag(tag: re.Match[str]) -> str:
    """Return what stays of a tag: nothing, or all of it if it is none, as in `vector<int>` and `List<Object>`."""
    name = tag[1].lower()
    if not _is_tag(tag) or not (name in WIKI_TAGS or (name in HTML_TAGS and not _is_type(tag))):
        return tag[0]
    return "\n" if HEADING.match(tag[0]) else ""


def _superscripts(text: str) -> str:
    """Write superscripts and subscripts as plain text, after removing the gaps next to their tags."""
    if not HAS_SUP_SUB.search(text):
        return text
    return superscripts.resolve(SUP_SUB_EDGE.sub(lambda edge: edge[1] or "", text))


def _drop_formatting(text: str) -> str:
    """Remove tags, switches and quotes; a sign behind a tag or quotes begins no list."""
    text = FORMATTED_START.sub(rf"\g<0>{GUARD}", text)
    text = TAG.sub(_tag, _html_headings(text))
    return QUOTES.sub("", MAGIC.sub(GAP, text))


def _is_type(tag: re.Match[str]) -> bool:
    """Return whether a name in angle brackets directly follows a word, as a type does in source code."""
    before = tag.string[tag.start() - 1 : tag.start()]
    return tag[0] == f"<{tag[1]}>" and before.isascii() and before.isalnum()


def _html_headings(text: str) -> str:
    return _contents(HEADING, _html_heading, text) if "<h" in text or "<H" in text else text


def _html_heading(tag: re.Match[str], content: str) -> str:
    """Write <h3>words</h3> as a heading of wiki markup; content with an empty line inside is text."""
    if BLANK_LINE.search(content):
        return f"\n{content}"
    edge = "=" * int(tag[1][1])
    return f"\n{edge} {' '.join(content.split())} {edge}\n"


def _address(address: re.Match[str]) -> str:
    return GAP + address[0][len(address[0].rstrip(BEHIND_URL)) :]


def _drop_hidden(text: str) -> str:
    """Remove the elements that a page does not display: <span style="display:none">…</span>.

    An element without an end tag stays, and so does one other than a block that runs over an empty line.
    """
    if not any(word in text for word in ("display", "Display", "DISPLAY", "visibility")) or not HIDING.search(text):
        return text
    # Name → (start, whether it is hidden, paragraph of its start) of the elements without an end yet.
    opened: dict[str, list[tuple[int, bool, int]]] = defaultdict(list)
    # (start, end, what replaces it) of each hidden element.
    hidden: list[tuple[int, int, str]] = []
    paragraph = 0
    for edge in ELEMENT_EDGE.finditer(text):
        if edge[2] is None:
            paragraph += 1
            continue
        name = edge[2].lower()
        if edge[1]:
            start, hides, start_paragraph = opened[name].pop() if opened[name] else (0, False, 0)
            if hides and (start_paragraph == paragraph or name in BLOCK_ELEMENTS):
                hidden.append((start, edge.end(), f"\n{GAP}" if name in BLOCK_ELEMENTS else GAP))
        elif name not in VOID and not edge[3].endswith("/"):
            hides = "style" in edge[3].lower() and HIDING.search(edge[3]) is not None
            opened[name].append((edge.start(), hides, paragraph))
    parts: list[str] = []
    position = 0
    for start, end, trace in sorted(hidden):
        if start >= position:
            parts += (text[position:start], trace)
            position = end
    return "".join(parts) + text[position:]


def _formula(_tag: re.Match[str], content: str) -> str:
    """Return the formula itself if it is readable as plain text, such as E = mc^2, or FORMULA if it needs TeX."""
    body = " ".join(content.split())
    return FORMULA if re.search(r"[\\{}]", body) else (protect(body) or GAP)


def _code(tag: re.Match[str], content: str) -> str:
    return protect(content) if "inline" in tag[2].lower() else f"\n{GAP}"


def _characters(text: str) -> str:
    """Replace character references, which end with ";" in wiki markup.

    They are replaced once, except that `&amp;nbsp;` is common and always means a space.
    """
    if "&" not in text:
        return text
    text = ENTITY.sub(_character, NO_CHARACTER.sub("", text))
    return NO_CHARACTER.sub("", text).replace("&nbsp;", " ") if "&" in text else text


def _character(entity: re.Match[str]) -> str:
    return unescape(entity[0]) if entity[0][1] == "#" else html5.get(entity[0][1:], entity[0])


def _link(content: str) -> str:
    """Return the text of a link: [[target|label]] → label; "" for a link to a file, category or another Wikipedia.

    A link without a label displays its target, without the colon at its start: [[:en:Tokyo]] → en:Tokyo.
    """
    if GAP in content:
        content = _arguments(content)
    target, bar, label = content.replace(BAR, "|").partition("|")
    if "{{" in target and "}}" not in target:
        # The bar belongs to a template in the target; the link is resolved after that template.
        return f"[[{content}]]"
    if ":" in target and _is_silent(target):
        return GAP
    if label and not label.isspace():
        return label
    target = target.strip(AROUND_TITLE)
    if bar:
        # [[ローマ (曖昧さ回避)|]] shows the target without the bracketed part, and without what its first colon ends.
        target = target[prefix.end() :] if (prefix := PIPE_PREFIX.match(target)) else target
        bracket = BRACKET.search(target) if target.endswith((")", "）")) else None
        return (target[: bracket.start()].rstrip() if bracket else target) or GAP
    return target.removeprefix(":").lstrip("#").replace("_", " ").replace("#", "の") or GAP


def _is_silent(target: str) -> bool:
    """Return whether a link displays no text: to a file, to a category, or to the same article in another Wikipedia."""
    prefix, _, name = target.strip(AROUND_TITLE).partition(":")
    prefix = prefix.replace("_", " ").strip(AROUND_TITLE).lower()
    return prefix in SILENT or (prefix in LANGUAGES and not name.startswith(":"))


def _drop_tables(text: str) -> str:
    """Remove the tables {| … |} and <table> … </table>, including nested ones, and the cells of unclosed ones."""
    # Start of each table → its end.
    ends: dict[int, int] = {}
    # (kind, start and end of its {| or <table>) of the tables without an end yet.
    opened: list[tuple[str, int, int]] = []
    # Number of open tables of each kind, so that an unmatched end does not cause a search in `opened`.
    numbers: Counter[str] = Counter()
    edges = TABLE_EDGE if HTML_TABLE.search(text) else WIKI_TABLE_EDGE
    for edge in edges.finditer(text):
        kind = "wiki" if edge[1] or edge[2] else "html"
        if edge[1] or (kind == "html" and edge[3]):
            opened.append((kind, edge.start(), edge.end()))
            numbers[kind] += 1
        elif numbers[kind]:
            # A table of the other kind that is still open inside this one also ends here.
            while (inner := opened.pop())[0] != kind:
                numbers[inner[0]] -= 1
            numbers[kind] -= 1
            ends[inner[1]] = edge.end()
    unclosed = {start: (kind, end) for kind, start, end in opened}
    parts: list[str] = []
    position = 0
    for start in sorted(ends | unclosed):
        parts.append(text[position:start])
        if start in ends:
            position = max(position, ends[start])
        elif start >= position:
            position = _unclosed_end(text, start, *unclosed[start])
    return _drop_rows("".join(parts) + text[position:])


def _unclosed_end(text: str, start: int, kind: str, end: int) -> int:
    """Return where an unclosed table ends, whose {| or <table> is at start:end: before a paragraph without a cell.

    {| without cells is text, as in {|x| < 1}, unless only attributes follow it in its line.
    """
    # The first cell is in the next line.
    head_end = text.find("\n", end) if kind == "wiki" else end
    head_end = len(text) if head_end < 0 else head_end
    if cells := CELLS.match(text, head_end):
        return cells.end()
    return head_end if ONLY_ATTRIBUTES.fullmatch(text, end, head_end) else start


def _drop_rows(text: str) -> str:
    """Remove the cells of tables without a beginning: in each section with a row, and above the end of a table."""
    if "|-" in text and ROW.search(text):
        borders = [0, *(heading.start() for heading in NEXT_HEADING.finditer(text)), len(text)]
        sections = [text[start:end] for start, end in pairwise(borders)]
        text = "".join(CELL.sub("", section) if ROW.search(section) else section for section in sections)
    return _drop_cells(text) if "|}" in text and TABLE_END.search(text) else text


def _drop_cells(text: str) -> str:
    """Remove the lines of cells above each end of a table."""
    lines: list[str] = []
    inside = False
    for line in reversed(text.split("\n")):
        ends = TABLE_END.match(line) is not None
        inside = ends or (inside and CELL.match(line) is not None)
        if ends or not inside:
            lines.append(line)
    return "\n".join(reversed(lines))


def _tidy(text: str) -> str:
    """Remove the gaps, and the traces of removed words next to them: empty brackets, separators, doubled commas."""
    # Removing an empty pair may leave the pair around it empty.
    for _ in range(LAYERS):
        text, number = EMPTY.subn(GAP, text)
        if not number:
            break
    text = _without_gaps(WORDLESS_LINE.sub("", OPENING.sub(r"\1", text)))
    text = BREAK_BEFORE_CLOSING.sub("", AFTER_OPENING.sub(lambda m: m[0][0], text))
    return SPACES.sub(lambda m: "" if m[1] else " ", AFTER_STOP.sub("。", text))


def _without_gaps(text: str) -> str:
    """Remove the gaps, and the separators next to them that are left over."""
    # The line break ends the separators behind the last gap.
    first, *pieces = f"{text}\n".split(GAP)
    tidied = [first.rstrip(SEPARATORS)]
    # The separators on both sides of one gap or several.
    separators = first[len(tidied[0]) :]
    for piece in pieces:
        behind = piece.lstrip(SEPARATORS)
        separators += piece[: len(piece) - len(behind)]
        # Otherwise another gap follows.
        if behind:
            if behind[0] in "）)":
                tidied[-1] = tidied[-1].rstrip(BEFORE_CLOSING)
                separators = separators.rstrip(BEFORE_CLOSING)
            elif tidied == [""] or tidied[-1].endswith("\n"):
                separators = separators.lstrip(AT_LINE_START)
            tidied += (COMMAS.sub("", separators), behind.rstrip(SEPARATORS))
            separators = behind[len(tidied[-1]) :]
    return "".join(tidied) + separators


def _heading(line: str) -> tuple[int, str] | None:
    """Parse a heading: == words == → (2, "words"); None for any other line."""
    left, right = len(line) - len(line.lstrip("=")), len(line) - len(line.rstrip("="))
    level = min(left, right, len(line) // 2, 6)
    return (level, line[level:-level].strip()) if level else None


def _words(line: str) -> str:
    """Return the words in a line: without unbalanced markup at its start; "" for a parameter of a broken template."""
    if line[0] not in "-}|":
        return line
    if PARAMETER_LINE.match(line):
        return line.partition("}}")[2].strip()
    return LINE_START.sub("", line, count=1)


def _join_lines(text: str, drop_sections: frozenset[str]) -> str:
    """Join the lines of an article, leaving out list markers, empty sections and the sections in `drop_sections`."""
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
        line = _words(line)
        if dropped < 7 or not line:
            continue
        if line[0] in "*#:;" and (marker := LIST_MARKER.match(line)):
            line = line[marker.end() :]
        if ONLY_MARKUP.fullmatch(line) or (FORMULA in line and not WORD.search(line.replace(FORMULA, ""))):
            continue
        lines += [part for _, title in waiting for part in ("", title)]
        waiting = []
        lines.append(line)
    return "\n".join(lines).replace("[[", "").replace("]]", "").replace("{{", "").replace("}}", "").strip()
