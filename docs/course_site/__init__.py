"""The Sphinx extension of the course's site: pages generated from the library, links, notebooks, and search.

`make site` builds the site from the repository's root with docs/conf.py. Nothing of it is imported by the library.
"""

from sphinx.application import Sphinx

from course_site import (
    api,
    commands,
    configurations,
    editions,
    glossary,
    home,
    languages,
    links,
    notebook_pages,
    search,
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives, transforms and the search language."""
    for module in (api, commands, configurations, editions, glossary, home, languages, links, notebook_pages, search):
        module.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
