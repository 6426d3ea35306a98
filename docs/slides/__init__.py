"""Slides generated from the notebooks: `python -m docs.slides`, or `make slides`."""
