"""Every template of the package, and the one way to fill one in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)


def render(name: str, **values: Any) -> str:
    """The page ``name``, e.g. ``"tour"``, with these values.

    Raises:
        jinja2.UndefinedError: the template asks for a value that is not given.
    """
    return _ENVIRONMENT.get_template(f"{name}.html.jinja").render(**values)
