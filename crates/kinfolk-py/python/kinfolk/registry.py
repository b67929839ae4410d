"""What there is to use, as `kinfolk list` shows it."""

from __future__ import annotations

from typing import NamedTuple

from . import _kinfolk
from .fields import describe


@describe(
    name="Its name in an experiment file.",
    default="As in an experiment file; `required` where it must be given, `None` where it stays absent.",
    wanted="Which values it takes.",
    help="What it does.",
)
class Setting(NamedTuple):
    """A setting of a method, a model or a dataset."""

    name: str
    default: str | None
    wanted: str
    help: str


@describe(
    name="Its name in an experiment file.",
    summary="What it is, in one line.",
    settings="What can be set, and to what.",
)
class Entry(NamedTuple):
    """A method, a model, a dataset or a preset."""

    name: str
    summary: str
    settings: tuple[Setting, ...]


def methods() -> list[Entry]:
    """Every method, with its settings."""
    return _entries(_kinfolk.methods())


def models() -> list[Entry]:
    """Every model, with its settings."""
    return _entries(_kinfolk.models())


def datasets() -> list[Entry]:
    """Every dataset, with its settings."""
    return _entries(_kinfolk.datasets())


def presets() -> list[Entry]:
    """Every experiment that `kinfolk.run` knows by name."""
    return _entries(_kinfolk.presets())


def _entries(found: list[_kinfolk.RegistryEntry]) -> list[Entry]:
    return [Entry(name, summary, tuple(Setting(*setting) for setting in settings)) for name, summary, settings in found]
