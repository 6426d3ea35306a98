"""course_lib: the library under the Japanese language model course.

One package per chapter (corpus, japanese, subword, …) over a few shared modules (config, workspace, files, parallel).
Importing it imports nothing heavy and has no side effects.
"""

__version__ = "0.1.0"
