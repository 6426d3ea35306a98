"""Slides generated from the notebooks: `python -m course_slides`, or `make slides`."""
