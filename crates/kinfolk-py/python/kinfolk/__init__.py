"""Finds which clients of a federation are kin, and trains a model for every family."""

from . import cluster
from ._kinfolk import Error, __version__
from .clients import Client, Plan, Score
from .images import Digits, digits
from .registry import Entry, Setting, datasets, methods, models, presets
from .runs import Report, Run, load, run
from .tables import Table

__all__ = [
    "Client",
    "Digits",
    "Entry",
    "Error",
    "Plan",
    "Report",
    "Run",
    "Score",
    "Setting",
    "Table",
    "__version__",
    "cluster",
    "datasets",
    "digits",
    "load",
    "methods",
    "models",
    "presets",
    "run",
]
