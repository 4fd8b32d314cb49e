"""``raises(UserError, argument="beta", value=-1)``: an error is asked for its facts, never for its words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from minirlhf.core.errors import Facts


def require(error: BaseException, **facts: Any) -> None:
    """Assert that an error carries these facts (see :class:`minirlhf.core.errors.Facts`)."""
    found = error.facts if isinstance(error, Facts) else {}
    assert {name: found.get(name) for name in facts} == facts, f"{type(error).__name__}: {error}"
    assert str(error).strip(), f"{type(error).__name__} says nothing"


@contextmanager
def raises(kind: type[BaseException], **facts: Any) -> Iterator[pytest.ExceptionInfo]:
    """As ``pytest.raises``, and the error carries these facts."""
    with pytest.raises(kind) as caught:
        yield caught
    require(caught.value, **facts)


def without_pictures(page: str) -> str:
    """A page of HTML without the bytes of its pictures, in which any short word may stand by chance."""
    return re.sub(r'base64,[^"]*', "", page)


def called(value: Any) -> str | None:
    """The id of a row that holds a lambda is what it calls, so that ``pytest -k`` finds it: ``ids=called``."""
    return "_".join(value.__code__.co_names[:2]) if getattr(value, "__name__", "") == "<lambda>" else None
