"""The words in the code cells of notebooks: what they print, and the names that figures show.

A cell is plain Python: `print(f"{number} documents")`. If COURSE_LANG names another language than English, `install`
adds a transformer to IPython's list (https://ipython.readthedocs.io/en/stable/config/inputtransforms.html), which
replaces the words of a cell by their translation before the cell runs. The source of the cell does not change, so the
notebooks of all languages have the same code. The same class finds the messages for the catalogues.

Messages are the lines that `print` prints, other f-strings with words between spaces, and texts of two words or more
that a function gets. `print("a", x)` and `print(f"a {x}")` have the same message, "a {x}". A field is called by its
variable, or by its number if it is another expression. Names are other strings that may be shown, such as the keys of a
dictionary: a name stays as it is in the code, and is translated where it is shown, by `print` here or by a figure of
the library.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from course_lib.errors import CourseError
from course_lib.language import words

# Functions whose arguments a reader sees.
SHOWING = ("print", "Markdown")
# Functions of words.py, for a word that no rule finds.
MARKS = ("tr", "mark")
# Methods whose arguments are parts of a text.
TEXT_METHODS = frozenset(dir(str))
JAPANESE = re.compile(r"[ぁ-ヿ一-鿿]")
# An English word between spaces, with or without punctuation.
WORD = re.compile(r"(?<!\S)[(\[“‘'\"]*[A-Za-z][A-Za-z'’-]*[a-z][)\],.:;!?…”’'\"]*(?!\S)")
LETTERS = re.compile(r"[A-Za-z]{2}")
NAME = re.compile(r"[A-Za-z]+(?:-[a-z]+)*")
CONVERSIONS = {-1: "", ord("r"): "r", ord("s"): "s", ord("a"): "a"}


class Message(NamedTuple):
    """A message of a cell for the catalogue."""

    text: str
    comment: str  # what the numbered fields are, or that the message is a name


class Words(ast.NodeTransformer):
    """Rewrites the syntax tree of a cell so that its words are translated when it runs, and collects its messages."""

    def __init__(self) -> None:
        # Messages with their line and column.
        self.messages: list[tuple[int, int, Message]] = []
        # Whether the present node is shown to the reader.
        self._shown = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrite calls that show something, and texts on which `format` is called."""
        called = node.func.id if isinstance(node.func, ast.Name) else None
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if called in MARKS:
            for value in node.args:
                if isinstance(value, ast.Constant):
                    self._keep(value, str(value.value))
            return node
        if called == "print":
            return self._print(node)
        if isinstance(node.func, ast.Attribute) and method == "format" and isinstance(node.func.value, ast.Constant):
            node.func.value = self._text(node.func.value)
        else:
            node.func = self.visit(node.func)
        before, part = self._shown, method in TEXT_METHODS
        self._shown = called in SHOWING or (before and method == "join")
        node.args = [self._text(value) if _is_text(value) and not part else self.visit(value) for value in node.args]
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        self._shown = before
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Rewrite an f-string if it is shown, or if it has words between spaces."""
        parts = [str(value.value) for value in node.values if isinstance(value, ast.Constant)]
        if not self._shown and not (re.search(r"\s", "".join(parts)) and WORD.search(" ".join(parts))):
            return self._hidden(node)
        return self._filled([node], "")

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Rewrite a text that is shown, and collect another one as a name."""
        if isinstance(node.value, str):
            if self._shown and WORD.search(node.value):
                return self._text(node)
            self._name(node, single=False)
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        """Collect the elements that may be names."""
        return self._members(node, node.elts)

    def visit_List(self, node: ast.List) -> ast.AST:
        """Collect the elements that may be names."""
        return self._members(node, node.elts)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        """Collect the keys and values that may be names."""
        return self._members(node, [*filter(None, node.keys), *node.values])

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Collect the values that may be names."""
        node.test = self.visit(node.test)
        node.body, node.orelse = (self._part(value) for value in (node.body, node.orelse))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Leave keys as they are, but for f-strings with words, which figures show."""
        node.value = self.visit(node.value)
        return node if isinstance(node.slice, ast.Constant) else self._hidden(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Leave docstrings as they are."""
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Leave what values are compared with as it is."""
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        """Rewrite a text, but leave a single word, which is a setting, as it is."""
        if isinstance(node.value, ast.Constant):
            node.value = self._text(node.value) if _is_text(node.value) else node.value
            return node
        return self.generic_visit(node)

    def _hidden(self, node: ast.AST) -> ast.AST:
        """Visit the children of a node that are not shown themselves."""
        before, self._shown = self._shown, False
        self.generic_visit(node)
        self._shown = before
        return node

    def _members(self, node: ast.AST, values: Sequence[ast.expr]) -> ast.AST:
        for value in values:
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and not self._shown:
                self._name(value, single=True)
        return self.generic_visit(node)

    def _part(self, value: ast.expr) -> Any:
        """Return a value of a conditional expression, rewritten; a text is a name unless it is shown."""
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and not self._shown:
            self._name(value, single=True)
            return value
        return self.visit(value)

    def _keep(self, node: ast.expr, text: str, comment: str = "") -> None:
        self.messages.append((node.lineno, node.col_offset, Message(text, comment)))

    def _name(self, node: ast.Constant, single: bool) -> None:
        """Collect a name. With `single`, a single word counts; otherwise, only words with a space between them do."""
        text = str(node.value)
        if _is_text(node) or (single and NAME.fullmatch(text) and len(text) >= words.SHORTEST):
            self._keep(node, text, "a name; the same as the original if it is a key or a proper name")

    def _text(self, node: Any) -> ast.expr:
        self._keep(node, str(node.value))
        return ast.copy_location(_call("tr", ast.Constant(node.value)), node)

    def _print(self, node: ast.Call) -> ast.Call:
        """Rewrite `print` so that it gets one text, which is translated as a whole, if that is possible.

        It is not if the number of arguments or the separator is only known when the cell runs. Each argument is then
        translated by itself.
        """
        separator = _separator(node)
        keywords = [self.visit(keyword) for keyword in node.keywords if keyword.arg != "sep"]
        if separator is not None and not any(isinstance(value, ast.Starred) for value in node.args):
            node.args = [self._filled(node.args, separator)] if node.args else []
            node.keywords = keywords
            return node
        node.args = [
            self.visit(value) if isinstance(value, ast.Starred) else self._filled([value], "") for value in node.args
        ]
        return node

    def _filled(self, values: Sequence[ast.expr], separator: str) -> ast.expr:
        """Return the call of `words.fill` for values that are shown one after the other."""
        template, plain = [], []
        fields: dict[str, ast.expr] = {}
        names: dict[str, str] = {}
        comments = []
        for piece in self._pieces(values, separator):
            if isinstance(piece, str):
                template.append(piece)
                plain.append(piece)
                continue
            source, filled = piece
            number = str(len(fields) + 1)
            # A variable that is shown twice is one field; a call may have another result the second time.
            same = ast.dump(filled) if isinstance(source, ast.Name) else number
            if same not in names:
                name = source.id if isinstance(source, ast.Name) and source.id not in fields else number
                names[same], fields[name] = name, filled
                if name == number:
                    comments.append(f"{{{name}}}: {ast.unparse(source)}")
            template.append(f"{{{names[same]}}}")
        text = "".join(template)
        if LETTERS.search(" ".join(plain)):
            self._keep(values[0], text, "; ".join(comments))
        keys: list[ast.expr | None] = [ast.Constant(name) for name in fields]
        return ast.copy_location(_call("fill", ast.Constant(text), ast.Dict(keys, list(fields.values()))), values[0])

    def _pieces(self, values: Sequence[ast.expr], separator: str) -> Iterator[str | tuple[ast.expr, ast.expr]]:
        """Yield the texts between fields, and for each field its expression and the call that formats it."""
        for number, value in enumerate(values):
            if number and separator:
                yield separator
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value
            elif isinstance(value, ast.JoinedStr):
                for part in value.values:
                    if isinstance(part, ast.FormattedValue):
                        source = _copy(part.value)
                        spec = part.format_spec or ast.Constant("")
                        conversion = ast.Constant(CONVERSIONS[part.conversion])
                        yield source, _call("shown", self._field(part.value), conversion, spec)
                    else:
                        yield part.value  # type: ignore[attr-defined]
            else:
                yield _copy(value), _call("printed", self._field(value))

    def _field(self, value: ast.expr) -> Any:
        """Return the expression of a field, rewritten. It is shown, but not what functions in it get."""
        before, self._shown = self._shown, True
        result = self.visit(value)
        self._shown = before
        return result


def messages(source: str) -> list[Message]:
    """Return the messages of a code cell without magics, each once, in the order of the cell."""
    found = Words()
    found.visit(ast.parse(source))
    ordered = [message for *_, message in sorted(found.messages, key=lambda each: each[:2])]
    return list({message.text: message for message in reversed(ordered)}.values())[::-1]


def install() -> None:
    """Translate the words of the cells that run from now on, if this process is an IPython kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    words.require_language()
    if shell and not any(isinstance(each, _CellWords) for each in shell.ast_transformers):
        shell.ast_transformers.append(_CellWords())
        shell.set_custom_exc((CourseError,), _show_error)


def _show_error(shell: Any, kind: type[CourseError], error: CourseError, trace: Any, tb_offset: int | None) -> None:
    """Show the traceback of an error that ended a cell, with its message in the reader's language. IPython calls it."""
    error.args = (words.error_line(str(error)),)
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


class _CellWords:
    """The transformer for IPython."""

    def visit(self, tree: ast.Module) -> Any:
        return Words().visit(tree)


def _is_text(node: ast.expr) -> bool:
    """Return whether an expression is an English text of two words or more, and no Japanese, code or part of a text."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    text = node.value
    code = JAPANESE.search(text) or re.search(r"[{}<>=/\\|]", text) or text != text.strip()
    return not code and " " in text and bool(WORD.search(text))


def _separator(node: ast.Call) -> str | None:
    """Return what `print` puts between its arguments, or None if it is not a constant text."""
    given = [keyword.value for keyword in node.keywords if keyword.arg == "sep"]
    if not given:
        return None if any(keyword.arg is None for keyword in node.keywords) else " "
    return given[0].value if isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) else None


def _call(function: str, *arguments: ast.expr) -> ast.Call:
    """Return the call of a function of words.py that works in any namespace."""
    package = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant(words.__name__)], [])
    module = ast.Attribute(package, words.__name__.split(".")[1], ast.Load())
    return ast.Call(ast.Attribute(module, function, ast.Load()), list(arguments), [])


def _copy(node: ast.expr) -> ast.expr:
    """Return a copy of an expression, since rewriting changes it in place."""
    return ast.parse(ast.unparse(node), mode="eval").body
