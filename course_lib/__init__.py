"""Library for the Japanese language model course: one package per chapter, and shared packages under them."""

__version__ = "1.1.0"
