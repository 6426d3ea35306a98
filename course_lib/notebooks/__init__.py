"""Executing notebooks, their plots, drawings and progress bar."""
