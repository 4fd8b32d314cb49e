"""Anchors of the one page, where each chapter has its own ``exercises``."""

import re


def anchor(page: str, name: str) -> str:
    """An anchor that is unique in the book."""
    return f"{page}:{name}"


def followed(html: str) -> str:
    """HTML whose links to an anchor of another page lead to that anchor's place on the one page."""
    return re.sub(r'href="#document-([^"#]+)#([^"]+)"', lambda m: f'href="#{anchor(m[1], m[2])}"', html)
