"""What the fields of a named tuple mean, for `help`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Kind = TypeVar("Kind")


def describe(**texts: str) -> Callable[[type[Kind]], type[Kind]]:
    """Gives the fields of a class their docstrings, which Python keeps for methods alone."""

    def give(kind: type[Kind]) -> type[Kind]:
        for name, text in texts.items():
            getattr(kind, name).__doc__ = text
        return kind

    return give
