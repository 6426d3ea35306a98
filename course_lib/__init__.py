"""Library for the Japanese language model course.

It contains one package per chapter (corpus, japanese, subword, …), and shared packages and modules (checkpoints,
training, config, workspace, …). Importing `course_lib` does not import large libraries. The one side
effect: in a notebook, if COURSE_LANG names another language than English, the words of later cells are translated.
"""

import os
import sys

__version__ = "0.1.0"

if "IPython" in sys.modules and os.environ.get("COURSE_LANG") not in (None, "", "en"):
    from course_lib.language import cell_words

    cell_words.install()
