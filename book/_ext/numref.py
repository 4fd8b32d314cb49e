"""References to numbered figures: Sphinx unpickles the page of a figure at each ``{numref}``; here the last few pages stay in memory."""

from functools import lru_cache
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.std import StandardDomain
from sphinx.environment import BuildEnvironment

PAGES = 4  # most references lead to a figure of the same page


class Kept:
    """An environment whose doctrees are only read, and some of them kept."""

    def __init__(self, env: BuildEnvironment) -> None:
        self._env, self.get_doctree = env, lru_cache(PAGES)(env.get_doctree)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class Referring(StandardDomain):
    """Sphinx's domain of labels, which looks for the figures of references in kept doctrees."""

    @property
    def kept(self) -> Kept:
        """Made at the first reference: by then all pages are read."""
        if "_kept" not in vars(self):
            self._kept = Kept(self.env)
        return self._kept

    def resolve_xref(
        self, env: BuildEnvironment, fromdocname: str, builder: Any, typ: str, *rest: Any
    ) -> nodes.reference | None:
        """As Sphinx does."""
        return super().resolve_xref(self.kept if typ == "numref" else env, fromdocname, builder, typ, *rest)  # type: ignore[arg-type]


def setup(app: Sphinx) -> dict[str, Any]:
    """Take the place of Sphinx's domain."""
    app.add_domain(Referring, override=True)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
