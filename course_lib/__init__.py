"""Library for the Japanese language model course.

It contains one package per chapter (corpus, japanese, subword, …), and shared packages and modules (checkpoints,
training, config, workspace, …). Importing `course_lib` does not import large libraries.
"""

__version__ = "0.1.0"
