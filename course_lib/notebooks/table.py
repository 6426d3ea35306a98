"""Tables of the values that a learner computes, as HTML with colored cells. The browser lays them out."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from course_lib.language.words import tr
from course_lib.notebooks.plot import CARD, INK, MUTED, Color

# A light card in both themes, as wide as its table.
FRAME = (
    f"display:inline-block;padding:8px 12px;border:1px solid #cbd2d9;border-radius:8px;background:{CARD};color:{INK}"
)
TABLE = "border-collapse:separate;border-spacing:3px;margin:0;font-size:13px;table-layout:auto"
CAPTION = f"caption-side:top;text-align:left;color:{INK};font-size:16px;font-weight:bold;white-space:nowrap"
PARAGRAPH = "max-width:640px;margin:4px;font-size:13px"
CELL = "padding:4px;border-radius:4px;white-space:nowrap"


@dataclass(frozen=True)
class Table:
    """A table with its title above and a description below. Rows are lists of cells, as `cell` returns them.

    The styles are attributes: JupyterLab keeps them in a notebook that is not trusted. GitHub removes them and shows a
    plain table, so a difference in color is also one in bold type.
    """

    title: str
    rows: Sequence[Sequence[str]]
    description: str

    @property
    def alt(self) -> str:
        """The text for readers who do not see the table: title and description."""
        return tr("{title}. {description}", title=self.title, description=self.description)

    @property
    def html(self) -> str:
        """The table as HTML."""
        rows = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in self.rows)
        caption = f'<caption style="{CAPTION}">{escape(self.title)}</caption>'
        table = f'<table style="{TABLE}">\n{caption}\n{rows}\n</table>'
        return f'<div style="{FRAME}">\n{table}\n<p style="{PARAGRAPH}">{escape(self.description)}</p>\n</div>'

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": self.alt}


def cell(*lines: str, columns: int = 1, color: Color | None = None, align: str = "center", bold: bool = False) -> str:
    """Return a cell over some columns: its first line, and smaller lines below it. Without a color it has no border."""
    if color:
        colors = f"background:{color.fill};color:{INK};border:1px solid {color.line}"
    else:
        colors = f"background:{CARD};color:{MUTED};border:none"
    style = f"{CELL};text-align:{align};{colors}"
    first, *others = map(escape, lines or ("",))
    shown = [f"<b>{first}</b>" if bold else first, *(f'<span style="font-size:12px">{line}</span>' for line in others)]
    width = f' colspan="{columns}"' if columns > 1 else ""
    return f'<td{width} style="{style}">{"<br>".join(shown)}</td>'
