"""Parts of a generated page, as docutils nodes: sections, tables and text with `code`."""

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias, cast

from docutils import nodes
from sphinx import addnodes
from sphinx.domains.std import StandardDomain
from sphinx.util.docutils import SphinxDirective

from course_authors.pages import anchor

Cell: TypeAlias = str | nodes.Node | Sequence[nodes.Node]


def text(content: str) -> list[nodes.Node]:
    """Return a line of text as nodes; `words` between backticks become code."""
    parts = re.split(r"`([^`]+)`", content)
    return [nodes.literal(part, part) if number % 2 else nodes.Text(part) for number, part in enumerate(parts) if part]


def paragraph(*parts: str | nodes.Node) -> nodes.paragraph:
    """Return a paragraph from text, as in `text`, and nodes."""
    built = nodes.paragraph()
    for part in parts:
        built += text(part) if isinstance(part, str) else part
    return built


def code(content: str) -> nodes.literal:
    """Return a piece of code inside a line."""
    return nodes.literal(content, content)


def block(content: str, language: str) -> nodes.literal_block:
    """Return lines of code, colored as a language that Pygments knows."""
    return nodes.literal_block(content, content, language=language)


def link(uri: str, *content: nodes.Node) -> nodes.reference:
    """Return a link to an address, or to `#id` on the same page."""
    if uri.startswith("#"):
        return nodes.reference("", "", *content, internal=True, refid=uri[1:])
    return nodes.reference("", "", *content, refuri=uri)


def document(docname: str, anchor: str, *content: nodes.Node) -> addnodes.pending_xref:
    """Return a link to a section of another page, which the build checks."""
    return addnodes.pending_xref(
        "", nodes.inline("", "", *content), refdomain="doc", reftype="myst", reftarget=docname, reftargetid=anchor,
        refexplicit=True,
    )  # fmt: skip


def section(directive: SphinxDirective, title: str, entries: Iterable[str] = ()) -> nodes.section:
    """Return an empty section whose id is GitHub's anchor of its title, so that other pages can link to it.

    Args:
        directive: the directive that makes the page.
        title: the title.
        entries: words under which the index and the search list the section.
    """
    identifier = anchor(title)
    built = nodes.section(ids=[identifier], names=[nodes.fully_normalize_name(title)])
    built += nodes.title(title, title)
    built += index(entries, identifier)
    directive.state.document.note_explicit_target(built)
    page = directive.env.docname
    std = cast(StandardDomain, directive.env.get_domain("std"))
    std.note_hyperlink_target(f"{page}#{identifier}", page, identifier, title)
    return built


def index(entries: Iterable[str], target: str, group: str | None = None) -> list[nodes.Node]:
    """Return a node that lists an id on this page under some words in the index and in the search.

    `group` is the heading in the index; None means the word's first letter.
    """
    # A semicolon would divide an entry into two levels.
    listed = [("single", entry.replace(";", ","), target, "main", group) for entry in entries]
    return [addnodes.index(entries=listed)] if listed else []


def table(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> nodes.table:
    """Return a table of text and nodes."""
    group = nodes.tgroup(cols=len(headings))
    group += [nodes.colspec(colwidth=1) for _ in headings]
    group += nodes.thead("", _row(headings))
    group += nodes.tbody("", *map(_row, rows))
    return nodes.table("", group)


def _row(cells: Sequence[Cell]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        content = text(cell) if isinstance(cell, str) else [cell] if isinstance(cell, nodes.Node) else cell
        row += nodes.entry("", nodes.paragraph("", "", *content))
    return row
