"""A progress bar for all long-running work, on terminals and in notebooks.

It shows speed and remaining time, and disappears when the work is done.
"""

import sys
from typing import Any


def progress(total: int | None, unit: str, label: str, start: int = 0) -> Any:
    """Return a tqdm progress bar, disabled if standard error is neither a terminal nor a notebook (a pipe, CI).

    `total` is None if it is unknown. Large counts are shown with k, M or G. The displayed rate does not include the
    first `start` units, which were done earlier.
    """
    from tqdm.auto import tqdm

    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    hidden = not (sys.stderr.isatty() or hasattr(shell, "kernel"))
    # Disable the monitor thread, because parallel.py forks only processes with one thread.
    tqdm.monitor_interval = 0
    style = {"unit": unit, "unit_scale": True, "leave": False, "mininterval": 0.2}
    return tqdm(desc=label, total=total, initial=start, disable=hidden, **style)
