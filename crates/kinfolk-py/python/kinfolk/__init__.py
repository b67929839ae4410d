"""Finds which clients of a federation are kin, and trains a model for every family."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import cluster
from ._kinfolk import Error, __version__
from .clients import Client, Plan, Score
from .images import Digits, digits
from .registry import Entry, Setting, datasets, methods, models, presets
from .runs import Report, Run, load, run
from .tables import Table

if TYPE_CHECKING:
    from .families import FamilyClassifier, FamilyRegressor
    from .mixtures import FamilyMixture

__all__ = [
    "Client",
    "Digits",
    "Entry",
    "Error",
    "FamilyClassifier",
    "FamilyMixture",
    "FamilyRegressor",
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


def __getattr__(name: str) -> Any:
    if name in ("FamilyClassifier", "FamilyRegressor"):
        # They import scikit-learn, where it is.
        return getattr(import_module(".families", __name__), name)
    if name == "FamilyMixture":
        return import_module(".mixtures", __name__).FamilyMixture
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
