"""One progress bar for all long work: rate and time left, on the terminal and in notebooks, gone when the work is done."""

import sys
from typing import Any

from tqdm.auto import tqdm


def progress(total: int | None, unit: str, label: str) -> Any:
    """A tqdm bar over `total` units ('B' counts bytes in k/M/G). Silent where nobody watches (a pipe, CI)."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    watched = sys.stderr.isatty() or hasattr(shell, "kernel")  # a terminal or a notebook
    tqdm.monitor_interval = 0  # no thread that watches the bar: a process with threads cannot be copied (parallel.py)
    return tqdm(total=total, unit=unit, desc=label, unit_scale=True, leave=False, disable=not watched, mininterval=0.2)
