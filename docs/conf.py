"""Configuration of the course's site, built by `make site` (course_site/__main__.py). COURSE_LANG names the edition.

The English edition alone: `sphinx-build -c docs . workspace/site/html`. The source folder is the repository's root, or
a tree like it with translated texts, so that relative links between README.md, docs/ and notebooks/ work on GitHub, in
JupyterLab and on the site alike.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import course_lib  # noqa: E402
from course_lib.language.words import language as edition  # noqa: E402

from course_authors.notebooks import address  # noqa: E402
from course_site.api import source_address as linkcode_resolve  # noqa: E402, F401

# The site's own words; those of Sphinx and of the theme are in their catalogues.
WORDS = {
    "en": (
        "From raw Japanese text to a served language model",
        "Japanese LM course",
        "Search in English or Japanese …",
        "the authors of the course",
        "Show the course's version",
        "Hide the course's version",
    ),
    "ja": (
        "日本語の生テキストから言語モデルのサービングまで",
        "日本語言語モデルコース",
        "日本語または英語で検索 …",
        "本コースの著者",
        "本コースの解答例を表示",
        "本コースの解答例を隠す",
    ),
}

language = edition()
project, html_title, search_words, author, nb_code_prompt_show, nb_code_prompt_hide = WORDS[language]
release = course_lib.__version__

extensions = [
    "course_site",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/reference/*.md",
    "docs/instructor/**.md",
    "notebooks/*.ipynb",
    "course_lib/configs/README.md",
    "data/README.md",
    "data/aozora/README.md",
    "tests/bench/*.md",
    "tests/colab/record.md",
]
# The pages of other languages are built from a tree of their own.
exclude_patterns = [".*", "README.*.md", "workspace", "output", "dist", "**/__pycache__", "course_lib/data"]

# The stored outputs are those that the tests compare.
nb_execution_mode = "off"
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]

# Not installed by requirements.txt on every machine, only inside a Triton server, or not to be loaded by autodoc.
autodoc_mock_imports = ["lm_eval", "triton_python_backend_utils", "gradio"]
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 90
add_module_names = False
toc_object_entries = False

html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["course.css"]
html_js_files = ["marked_words.js", *(["japanese.js"] if language == "ja" else [])]
html_favicon = "_static/favicon.svg"
html_search_scorer = str(HERE / "course_site/scorer.js")
# The theme that the reader's system has.
html_context = {"default_mode": "auto"}
# index.html of the site and of ja/, which lead to the home pages in docs/.
html_extra_path = ["_root"] if language == "en" else []
html_show_copyright = False
# The pages of the library list its modules.
html_domain_indices = False
html_theme_options = {
    "repository_url": address(),
    "repository_branch": "main",
    "use_repository_button": True,
    "use_issues_button": True,
    "launch_buttons": {"colab_url": "https://colab.research.google.com"},
    "show_toc_level": 2,
    "show_navbar_depth": 1,
    # The search is in the sidebar and in the header of the page.
    "navbar_persistent": [],
    "navigation_with_keys": False,
    "article_header_end": ["language-switch.html", "article-header-buttons.html"],
    "search_bar_text": search_words,
}
copybutton_selector = "div:not(.output) > div.highlight pre"
# GitHub and Colab make the places on their pages in the browser.
linkcheck_anchors_ignore_for_url = [r"https://github\.com/", r"https://colab\.research\.google\.com/"]
linkcheck_timeout = 30
