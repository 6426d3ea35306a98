"""The progress bar in a notebook: a widget that leaves nothing behind.

Not even the red bar of tqdm after an error, and no text in the saved notebook. progress.py chooses it.
"""

from typing import Any

from IPython.display import display
from tqdm.notebook import tqdm_notebook

# Seconds between two updates of a bar. An update sends three messages, and a client that reads them after the cell,
# such as nbval, loses those beyond the 1,000 that ZeroMQ keeps.
INTERVAL = 1.0
# The MIME type of a widget in an output.
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


class NotebookBar(tqdm_notebook):  # type: ignore[misc]
    """tqdm's notebook bar, displayed without a text form, and removed from the output when it is closed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, display=False, mininterval=INTERVAL, **options)
        view = {"version_major": 2, "version_minor": 0, "model_id": self.container.model_id}
        self._output = display({WIDGET_MIME: view}, raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Show the last state, then remove the bar. An error is shown by its exception."""
        if not self.disable:
            self.refresh()
            super().close()
            self.container.close()
            self._output.update({}, raw=True)
