"""The library for the Japanese language model course.

It has one package per chapter (corpus, japanese, subword, …) and some shared modules (config, workspace, files,
parallel). Importing `course_lib` loads no large library and has no side effects.
"""

__version__ = "0.1.0"
