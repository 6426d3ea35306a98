"""Links inside the repository: absolute ones lead to pages of the site, those to other files to GitHub.

A link to a file that is no page of the edition leads to the English edition if it is one there, else to the repository
on GitHub.
"""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

from course_lib.language.words import SOURCE
from course_lib.paths import REPOSITORY
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from course_authors.notebooks import ABSOLUTE, ON_GITHUB
from course_site import page
from course_site.editions import ENGLISH_ONLY, english_address, file_name


class AbsoluteLinks(SphinxTransform):
    """Turns absolute links to files on GitHub, which notebooks have for Colab, into links to the pages of these files.

    So the build checks them as it does relative ones. A link to a file that is no page stays as it is.
    """

    # Before RepositoryLinks.
    default_priority = 860

    def apply(self, **kwargs: Any) -> None:
        """Replace the links of one page."""
        for node in list(self.document.findall(nodes.reference)):
            uri = node.get("refuri", "")
            if not uri.startswith(ABSOLUTE):
                continue
            name, _, anchor = unquote(uri.removeprefix(ABSOLUTE)).partition("#")
            path = Path(file_name(self.config, name))
            if (document := path.with_suffix("").as_posix()) in self.env.found_docs:
                node.replace_self(page.document(document, anchor, *node.children))
                continue
            english = english_address(self.config, REPOSITORY / path, f"#{anchor}" if anchor else "")
            if english and self.config.language != SOURCE:
                node["refuri"] = english
                node += nodes.Text(ENGLISH_ONLY)


class RepositoryLinks(SphinxTransform):
    """Turns relative links to files and folders outside the edition into links to the English one or to GitHub.

    Without it, MyST offers a file as a download, and warns of a folder and of a Markdown file outside the site.
    """

    # After MyST's own transforms, before the collectors that copy downloads.
    default_priority = 870

    def apply(self, **kwargs: Any) -> None:
        """Replace the links of one page."""
        for node in [
            *self.document.findall(addnodes.pending_xref),
            *self.document.findall(addnodes.download_reference),
        ]:
            if node.get("reftype") != "myst":
                continue
            target, _, anchor = str(node["reftarget"]).partition("#")
            if path := self._outside(node, target):
                anchor = anchor or node.get("reftargetid") or ""
                fragment = f"#{anchor}" if anchor else ""
                text = list(node.children)
                if uri := english_address(self.config, path, fragment):
                    text.append(nodes.Text(ENGLISH_ONLY))
                node.replace_self(nodes.reference("", "", *text, refuri=uri or f"{web(path)}{fragment}"))

    def _outside(self, node: nodes.Element, target: str) -> Path | None:
        """Return the existing file or folder that a link names, None if it is a page or does not exist."""
        root = Path(self.env.srcdir)
        if node.get("refdomain") == "doc":
            if target in self.env.found_docs:
                return None
            path = root / f"{target}.md"
        elif target:
            path = Path(self.env.relfn2path(target, self.env.docname)[1])
        else:
            return None
        path = path.resolve()
        return path if path.exists() and path.is_relative_to(REPOSITORY) else None


def web(path: Path, line: int = 0) -> str:
    """Return the address of a file, a line in it, or a folder, on the main branch on GitHub."""
    kind = "tree" if path.is_dir() else "blob"
    return f"{ON_GITHUB}/{kind}/main/{path.relative_to(REPOSITORY).as_posix()}" + (f"#L{line}" if line else "")


def setup(app: Sphinx) -> None:
    """Register the transforms."""
    app.add_transform(AbsoluteLinks)
    app.add_transform(RepositoryLinks)
