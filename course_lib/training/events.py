"""Messages from the ranks to the process that started them: a mark and JSON on one line of standard output."""

import json
import os
from typing import Any

MARK = "\x1ecourse "


def emit(kind: str, **facts: Any) -> None:
    """Write one event to standard output. Raises BrokenPipeError if the process that reads the events has exited."""
    line = f"{MARK}{json.dumps({'kind': kind} | facts, ensure_ascii=False)}\n"
    # Use a single write so that lines from two ranks do not mix.
    os.write(1, line.encode())


def parse(text: str) -> dict[str, Any] | None:
    """Return the event in a line of output, or None if there is none."""
    # A launcher may put a host name in front of each line.
    content = text.partition(MARK)[2]
    try:
        event: dict[str, Any] = json.loads(content)
    # A killed rank may leave an incomplete line.
    except ValueError:
        return None
    return event
