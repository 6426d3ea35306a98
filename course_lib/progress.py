"""One progress bar for all long work, on terminals and in notebooks.

It shows speed and remaining time, and disappears when the work is done.
"""

import sys
from typing import Any


def progress(total: int | None, unit: str, label: str) -> Any:
    """A tqdm progress bar, disabled if standard error is neither a terminal nor a notebook (a pipe, CI).

    Args:
        total: the number of units; None if it is unknown.
        unit: the name of a unit; with 'B', bytes are shown as k/M/G.
        label: text in front of the bar.
    """
    from tqdm.auto import tqdm

    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    # a terminal or a notebook
    watched = sys.stderr.isatty() or hasattr(shell, "kernel")
    # No monitor thread: parallel.py forks only processes with one thread.
    tqdm.monitor_interval = 0
    return tqdm(total=total, unit=unit, desc=label, unit_scale=True, leave=False, disable=not watched, mininterval=0.2)
