"""Executing notebooks, their plots, drawings, tables and progress bar."""
