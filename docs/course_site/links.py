"""Links to files of the repository that are no pages of the site lead to the repository on GitHub."""

from pathlib import Path
from typing import Any

from course_lib.notebooks import address
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class RepositoryLinks(SphinxTransform):
    """Turns relative links to files and folders outside the site into links to the repository's main branch.

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
                node.replace_self(nodes.reference("", "", *node.children, refuri=f"{web(path)}{fragment}"))

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
        return path if path.exists() and path.is_relative_to(root) else None


def web(path: Path, line: int = 0) -> str:
    """Return the address of a file, a line in it, or a folder, on the main branch on GitHub."""
    root = Path(__file__).resolve().parents[2]
    kind = "tree" if path.is_dir() else "blob"
    return f"{address()}/{kind}/main/{path.relative_to(root).as_posix()}" + (f"#L{line}" if line else "")


def setup(app: Sphinx) -> None:
    """Register the transform."""
    app.add_transform(RepositoryLinks)
