"""What ranks tell the process that started them: one JSON object a line on standard output, behind a mark.

The launcher's own lines and those of libraries come on the same stream, possibly behind a host's name; they hold no mark.
"""

import json
import os
from typing import Any

MARK = "\x1ecourse "


def emit(kind: str, **facts: Any) -> None:
    """Tells one event. Raises BrokenPipeError when nobody listens any more, which ends an orphaned rank."""
    line = f"{MARK}{json.dumps({'kind': kind} | facts, ensure_ascii=False)}\n"
    os.write(1, line.encode())  # one write, so that lines of two ranks do not mix


def parse(line: str) -> dict[str, Any] | None:
    """The event in a line of output, or None."""
    _, mark, content = line.partition(MARK)
    if not mark:
        return None
    try:
        event: Any = json.loads(content)
    except ValueError:  # cut off by a kill
        return None
    return event if isinstance(event, dict) else None
