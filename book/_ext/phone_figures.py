"""Figures on a phone: one of several panels is cut between them, and the panels stand below one another (``reading.js``).

A figure of up to ``FITS`` pixels fits a phone as it is. In a wider one the panels are found here, in the picture: between two panels there is
a strip of paper from top to bottom, and within one there is none, because its axes run through. What is narrow, such as the name of an
axis, belongs to the panel that is nearer, and rather to the one on its right. The places of the cuts become classes, ``cut-523`` for
52.3 % of the width, and the rows between which each part stands; a wide figure that cannot be cut scrolls.
"""

import functools
import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from matplotlib import image as image_file
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

FITS = 620  # pixels: letters of nine points are seven pixels high on a phone
PANEL = 0.2  # of the width: what is narrower is no panel
LABEL = 0.06  # of the width: as narrow is the name of an axis, which stands left of it, and as near to the panel before


def runs(inked: np.ndarray) -> list[tuple[int, int]]:
    """Begin and end of each stretch with ink."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], inked.astype(int), [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def has_axis(inked: np.ndarray) -> bool:
    """Does a line run through most of this part of a picture? Words have none."""
    return any(b - a > 0.5 * inked.shape[1] for row in inked[inked.any(axis=1)] for a, b in runs(row))


def ink(picture: np.ndarray) -> np.ndarray:
    """Which pixels of ``(height, width, colours)`` differ from the one in the corner."""
    differs = np.abs(picture[..., :3] - picture[0, 0, :3]) > 0.02
    return differs[..., 0] | differs[..., 1] | differs[..., 2]  # `any` along so short an axis takes three times as long


def cuts(inked: np.ndarray) -> list[float]:
    """Where a picture of which these pixels are inked is cut, as shares of its width; none if it is one panel."""
    width = inked.shape[1]
    parts = runs(inked.any(axis=0))
    while len(parts) > 1:  # join the narrowest to a neighbour, until each is a panel
        narrow = min(range(len(parts)), key=lambda i: parts[i][1] - parts[i][0])
        if parts[narrow][1] - parts[narrow][0] >= PANEL * width:
            break
        left = parts[narrow][0] - parts[narrow - 1][1] if narrow else width
        right = parts[narrow + 1][0] - parts[narrow][1] if narrow + 1 < len(parts) else width
        label = parts[narrow][1] - parts[narrow][0] < LABEL * width
        first = narrow - 1 if left * (3 if label else 1) < right else narrow
        parts[first : first + 2] = [(parts[first][0], parts[first + 1][1])]
    for i in reversed(range(len(parts) - 1)):  # the names of rows, however long, belong to what is on their right
        if not has_axis(inked[:, slice(*parts[i])]):
            parts[i : i + 2] = [(parts[i][0], parts[i + 1][1])]
    return [(a[1] + b[0]) / 2 / width for a, b in itertools.pairwise(parts)]


def heights(inked: np.ndarray, places: Sequence[float]) -> list[tuple[float, float]]:
    """Where the ink of each part begins and ends, as shares of the height: a legend is lower than the panel beside it."""
    tall, width = inked.shape
    ends = [round(place * width) for place in (0, *places, 1)]
    rows = [np.flatnonzero(inked[:, a:b].any(axis=1)) for a, b in itertools.pairwise(ends)]
    return [(int(row[0]) / tall, (int(row[-1]) + 1) / tall) for row in rows]


def classes(picture: np.ndarray) -> list[str]:
    """Of a wide image: where it is cut, and between which rows each part stands, ``rows-1-120-480`` for the second one."""
    inked = ink(picture)
    places = cuts(inked)
    rows = heights(inked, places) if places else []
    parts = (f"rows-{i}-{math.floor(1000 * a)}-{math.ceil(1000 * b)}" for i, (a, b) in enumerate(rows))
    return ["wide", *(f"cut-{round(1000 * place)}" for place in places), *parts]


@functools.cache
def measured(path: Path) -> tuple[int, tuple[str, ...]]:
    """The width of a file in pixels, and the classes of a wide one."""
    picture = image_file.imread(path)
    return picture.shape[1], tuple(classes(picture))


class Wide(SphinxPostTransform):
    """When what a notebook shows has become images."""

    default_priority = 901

    def run(self, **kwargs: Any) -> None:
        """The class ``wide`` and the cuts for an image that does not fit a phone."""
        if self.app.builder.format != "html" or self.app.builder.name == "epub":
            return
        for image in self.document.findall(nodes.image):
            path = Path(self.app.srcdir) / image["uri"].lstrip("/")
            if path.suffix != ".png" or not path.is_file():
                continue
            width, cut = measured(path)
            asked = re.fullmatch(r"(\d+)(?:px)?", str(image.get("width", "")))
            if (int(asked[1]) if asked else width) > FITS:
                image["classes"] += cut


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_post_transform(Wide)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
