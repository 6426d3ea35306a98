"""What an exercise shows: HTML in Jupyter with the same message as plain text, and plain text alone elsewhere.

JupyterLab sanitizes the HTML of a notebook that is not trusted. The tags and styles below pass its sanitizer. A verdict
has a background of its own, so that it is readable in a light and in a dark theme.
"""

import sys
from collections.abc import Sequence
from html import escape

from course_lib.language.words import tr


def show(text: str, html: str) -> None:
    """Print `text`, or in a Jupyter kernel send both forms as one output, of which the front end shows one."""
    ipython = sys.modules.get("IPython")
    if getattr(ipython and ipython.get_ipython(), "kernel", None) is None:
        print(text)
        return
    from IPython.display import display

    display({"text/plain": text, "text/html": html}, raw=True)  # type: ignore[no-untyped-call]


def verdict_html(right: bool, text: str) -> str:
    """Return a green or red badge and a text after it as HTML."""
    color, title = ("#1a7f37", tr("✓ right")) if right else ("#b42318", tr("✗ not yet"))
    return f'<p><b style="color:#ffffff;background-color:{color}">&nbsp;{title}&nbsp;</b> {escape(text)}</p>'


def hints_html(hints: Sequence[str], first: int = 0, opened: str = "") -> str:
    """Return the hints from number `first` (from 0) as HTML, each folded inside the one before it."""
    if first >= len(hints):
        return ""
    title = tr("Hint {number} of {all}", number=first + 1, all=len(hints))
    inner = f"<p>{escape(hints[first])}</p>{hints_html(hints, first + 1)}"
    return f"<details{opened}><summary>{title}</summary>{inner}</details>"


def solution_html(code: str, explanation: str) -> str:
    """Return a solution and its explanation as HTML, folded."""
    inner = f"<pre>{escape(code)}</pre><p>{escape(explanation)}</p>"
    title = tr("Solution")
    return f"<details><summary>{title}</summary>{inner}</details>"
