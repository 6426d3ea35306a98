"""The texts for people in a code cell: string literals and comments, found and replaced by their translations.

A text is a piece of source: what stands between the quotes of a literal, with the fields of an f-string, or behind the
`# ` of a comment. A literal is offered to translators if it is printed, is a label or a docstring, has two words, or is
a name in a list or dictionary, also one that is set there. If it is a value or a key, its translation is the same text.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from typing import NamedTuple

# Functions whose arguments are shown, and the arguments of others that are.
SHOWING, LABELS = ("print", "Markdown"), ("title", "label", "xlabel", "ylabel")
JAPANESE = re.compile(r"[ぁ-ヿ一-鿿]")
# Two words; a path, a setting or a pattern has none.
WORDS = re.compile(r"(?<![^\s(\[“‘'\"])[A-Za-z][a-z'’-]*[,.:;]?\s+\S*[A-Za-z][a-z]")
NAME = re.compile(r"[A-Za-z]{3,}(?:-[a-z]+)*")
# a name, or a word with something else, such as a number
LABEL = re.compile(rf"{NAME.pattern}|(?=.* )(?=.*[A-Za-z]{{3}}).*")
FIELD = re.compile(r"\{[^{}]*\}")
OPENING = re.compile(r"""[A-Za-z]*("{3}|'{3}|"|')""")


class Text(NamedTuple):
    """A text of a cell, and its position in the source."""

    text: str
    start: int
    end: int


def texts(source: str) -> list[Text]:
    """Return the texts of a code cell without magics, in their order."""
    lines = source.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def offset(line: int, column: int) -> int:
        """Return the offset of a position in the syntax tree, which counts columns in bytes."""
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    spans = [
        (offset(node.lineno, node.col_offset), offset(node.end_lineno or 0, node.end_col_offset or 0))
        for node in _offered(ast.parse(source))
    ]
    found = []
    for token in _tokens(source):
        start, end = (starts[line - 1] + column for line, column in (token.start, token.end))
        if token.type == tokenize.COMMENT:
            found.append(Text(source[start + 2 : end], start + 2, end))
        elif any(first <= start and end <= last for first, last in spans):
            opening = OPENING.match(source, start)
            quotes = len(opening[1]) if opening else 0
            start, end = opening.end() if opening else start, end - quotes
            found.append(Text(source[start:end], start, end))
    return [each for each in found if re.search("[A-Za-z]{2}", _words(each.text))]


def translated(source: str, translations: Mapping[str, str]) -> str:
    """Return a cell with its texts translated; a translation that would change the code is not used."""
    for each in reversed(texts(source)):
        new = source[: each.start] + translations.get(each.text, each.text) + source[each.end :]
        source = new if same_code(new, source) else source
    return source


def same_code(one: str, other: str) -> bool:
    """Return whether two cells have the same syntax tree, with strings, widths of fields and comments left out."""
    try:
        return _code(one) == _code(other)
    except SyntaxError:
        return one == other


def _offered(node: ast.AST, shown: bool = False) -> Iterator[ast.expr]:
    """Yield the literals of a syntax tree that may be for people."""
    match node:
        case ast.Compare():
            return
        case ast.Subscript(slice=ast.JoinedStr() as key, ctx=ast.Store()):
            yield key
            yield from _offered(node.value)
            return
        case ast.Subscript(slice=ast.Constant() as key):
            if " " in str(key.value) or (NAME.fullmatch(str(key.value)) and isinstance(node.ctx, ast.Store)):
                yield key
            yield from _offered(node.value)
            return
        case ast.Call(func=ast.Name(id=name)):
            shown = name in SHOWING
        case ast.Call(func=ast.Attribute(attr=name)):
            shown = shown and name in ("join", "format")
        case ast.Return(value=ast.JoinedStr()):
            shown = True
        case ast.keyword(arg=name):
            shown = shown or name in LABELS
        case ast.Expr(value=ast.Constant()):
            shown = True
        case ast.Constant(value=str(text)):
            if shown or (WORDS.search(text) and not JAPANESE.search(text)):
                yield node
        case ast.JoinedStr():
            plain = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            if shown or WORDS.search(plain):
                yield node
            return
        case ast.List() | ast.Tuple() | ast.Dict() | ast.IfExp():
            for each in ast.iter_child_nodes(node):
                if isinstance(each, ast.Constant) and LABEL.fullmatch(str(each.value)) and not shown:
                    yield each
    for child in ast.iter_child_nodes(node):
        yield from _offered(child, shown)


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the comments and strings of a cell; an f-string, which has several tokens since Python 3.12, as one."""
    opened: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            opened.append(token)
        elif kind == "FSTRING_END":
            first = opened.pop()
            if not opened:
                yield token._replace(type=tokenize.STRING, start=first.start)
        elif kind in ("STRING", "COMMENT") and not opened:
            yield token


def _words(text: str) -> str:
    """Return a text with only the literals of its fields."""
    return FIELD.sub(lambda field: " ".join(re.findall(r"'[^']*'|\"[^\"]*\"", field[0])), text)


def _code(source: str) -> str:
    return ast.dump(_Bare().visit(ast.parse(source)))


class _Bare(ast.NodeTransformer):
    """Leaves out what a translation may change: strings, and the order and the widths of an f-string's fields."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Empty a string."""
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Replace an f-string by its fields."""
        fields = [self.visit(part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
        return ast.Tuple(sorted(fields, key=ast.dump), ast.Load())
