"""Marks Japanese words inside English pages as Japanese, for the voices of screen readers and the shape of kanji."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from course_site.search import JAPANESE, RUNS

# Code keeps its text: tokens are colored, and the copy button takes it as it is.
CODE = nodes.literal_block | nodes.literal | nodes.raw | nodes.comment


class JapaneseWords(SphinxPostTransform):
    """Puts runs of Japanese characters into `<span lang="ja">`."""

    default_priority = 900
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Mark the runs of one page."""
        if self.config.language == "ja":
            return
        for node in list(self.document.findall(nodes.Text)):
            if JAPANESE.search(node) and not isinstance(node.parent, CODE):
                parts = [part for part in RUNS.split(node) if part]
                # docutils writes the class language-ja as the attribute lang="ja".
                marked = [
                    nodes.inline(part, part, classes=["language-ja"]) if JAPANESE.match(part) else nodes.Text(part)
                    for part in parts
                ]
                node.parent.replace(node, marked)


def setup(app: Sphinx) -> None:
    """Register the transform."""
    app.add_post_transform(JapaneseWords)
