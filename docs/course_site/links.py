"""Links to files that are no pages of the edition lead to the English edition or to the repository on GitHub."""

from pathlib import Path
from typing import Any

from course_lib.paths import REPOSITORY
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from course_authors.notebooks import address
from course_site.editions import ENGLISH_ONLY, english_address


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
            target, _, place = str(node["reftarget"]).partition("#")
            if path := self._outside(node, target):
                fragment = f"#{place or node.get('reftargetid')}" if place or node.get("reftargetid") else ""
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


# Each call of `address` reads pyproject.toml.
ON_GITHUB = address()


def web(path: Path, line: int = 0) -> str:
    """Return the address of a file, a line in it, or a folder, on the main branch on GitHub."""
    kind = "tree" if path.is_dir() else "blob"
    return f"{ON_GITHUB}/{kind}/main/{path.relative_to(REPOSITORY).as_posix()}" + (f"#L{line}" if line else "")


def setup(app: Sphinx) -> None:
    """Register the transform."""
    app.add_transform(RepositoryLinks)
