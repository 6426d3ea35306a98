"""One look for all figures: size, colours and the Japanese font. The figures themselves are in each chapter's figures.py."""

from typing import Any

COLOURS = ("#3b6ea5", "#d9822b", "#5a9e6f", "#b0485a", "#7a6aa8", "#8a8a8a")
BEFORE, AFTER = COLOURS[5], COLOURS[0]


def subplots(columns: int = 1, height: float = 3.4, width: float = 8.0, **options: Any) -> tuple[Any, Any]:
    """A figure with its axes, in the course's look. Importing matplotlib takes a second, so it happens here."""
    import matplotlib.pyplot as plt
    import matplotlib_fontja  # noqa: F401  registers the Japanese font

    figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", **options)
    for axis in axes if columns > 1 else [axes]:
        axis.spines[["top", "right"]].set_visible(False)
    plt.close(figure)  # a notebook shows the figure it is given, once
    return figure, axes
