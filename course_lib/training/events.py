"""Messages from the ranks to the process that started them: one JSON object per line of standard output, after a mark.

The launcher and other libraries print to the same stream, and the launcher may put a host name in front of a line.
The mark tells the events from all other output.
"""

import json
import os
from typing import Any

MARK = "\x1ecourse "


def emit(kind: str, **facts: Any) -> None:
    """Writes one event to standard output.

    Raises BrokenPipeError when the process that reads the events has ended; this ends the orphaned rank.
    """
    line = f"{MARK}{json.dumps({'kind': kind} | facts, ensure_ascii=False)}\n"
    # A single write, so that the lines of two ranks do not mix.
    os.write(1, line.encode())


def parse(line: str) -> dict[str, Any] | None:
    """The event in a line of output; None if the line has none."""
    _, mark, content = line.partition(MARK)
    if not mark:
        return None
    try:
        event: Any = json.loads(content)
    # A killed rank may leave an incomplete line.
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
