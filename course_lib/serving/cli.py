"""Registers the verbs of chapter 7."""

import typer

from course_lib.serving.ct2_cli import register_ct2
from course_lib.serving.ft_cli import register_ft
from course_lib.serving.serve_cli import register_serve


def register(app: typer.Typer) -> None:
    """Add this chapter's verbs to the `course` command."""
    register_ft(app)
    register_serve(app)
    register_ct2(app)
