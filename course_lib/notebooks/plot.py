"""The common style for all figures: size, colors and the Japanese font. Each chapter has its own in figures.py."""

from typing import Any

COLOURS = ("#3b6ea5", "#d9822b", "#5a9e6f", "#b0485a", "#7a6aa8", "#8a8a8a")
BEFORE, AFTER = COLOURS[5], COLOURS[0]


def subplots(columns: int = 1, height: float = 3.4, width: float = 8.0, **options: Any) -> tuple[Any, Any]:
    """Create a figure and a row of `columns` axes in the course style; sizes are in inches.

    matplotlib is imported inside the function because the import takes a second.
    """
    import matplotlib.pyplot as plt

    # The import registers the Japanese font.
    import matplotlib_fontja  # noqa: F401

    figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", **options)
    for axis in axes if columns > 1 else [axes]:
        axis.spines[["top", "right"]].set_visible(False)
    # A notebook displays the returned figure. If the figure stayed open, it would be displayed twice.
    plt.close(figure)
    return figure, axes
