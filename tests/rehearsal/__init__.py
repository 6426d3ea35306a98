"""A rehearsal of the course on a small copy of what the profiles download: published file layouts, random weights."""

from pathlib import Path

HERE = Path(__file__).parent
PROFILES = ("single-gpu", "xl", "colab", "laptop")
