"""A progress bar for all long-running work, on terminals and in notebooks, which disappears when the work is done."""

import os
import sys
from importlib.util import find_spec
from typing import Any

from course_lib.errors import QUIET
from course_lib.language.words import tr


def progress(total: int | None, unit: str, label: str, start: int = 0) -> Any:
    """Return a tqdm progress bar, disabled if standard error is neither a terminal nor a notebook (a pipe, CI).

    `total` is None if it is unknown. The first `start` units were done earlier and are not part of the rate.
    """
    from tqdm import tqdm

    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    kind: Any = tqdm
    if hasattr(shell, "kernel") and find_spec("ipywidgets"):
        from course_lib.notebooks.progress_widget import NotebookBar as kind
    # Disable the monitor thread, because parallel.py forks only processes with one thread.
    tqdm.monitor_interval = 0
    style: dict[str, Any] = {"unit": tr(unit), "unit_scale": True, "leave": False}
    if kind is tqdm:
        style |= {"mininterval": 0.2, "disable": bool(os.environ.get(QUIET)) or not sys.stderr.isatty()}
    return kind(desc=tr(label), total=total, initial=start, **style)
