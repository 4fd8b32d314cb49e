"""Figures in the dark: the style sheet turns light and dark round and leaves the hues, so that a drawing is no bright slab.

Where the caption or the text for those who cannot see it speaks of what is dark or pale, the figure stays as it was drawn.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

SPEAKS = re.compile(r"\b(?:black|white|dark|darker|darkest|light|lighter|lightest|bright\w*|pale|paler|palest)\b", re.I)


class AsDrawn(SphinxPostTransform):
    """When what a notebook shows has become images."""

    default_priority = 900

    def run(self, **kwargs: Any) -> None:
        """The class ``as-drawn`` for an image that must stay."""
        for image in self.document.findall(nodes.image):
            frame = image.parent
            caption = (
                " ".join(c.astext() for c in frame.findall(nodes.caption)) if isinstance(frame, nodes.figure) else ""
            )
            if SPEAKS.search(f"{image.get('alt', '')} {caption}"):
                image["classes"].append("as-drawn")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_post_transform(AsDrawn)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
