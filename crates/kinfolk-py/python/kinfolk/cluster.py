"""Clustering of points: any array of shape (points, numbers), and how good a clustering is.

The same results as `kinfolk cluster`, to the bit. Clusters are numbered in the order in which their first points stand.
`KMeans`, `ConvexClustering` and `Auto` are the same as clusterers for scikit-learn's pipelines.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _kinfolk
from .fields import describe

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from .clusterers import Auto, ConvexClustering, KMeans

__all__ = [
    "Auto",
    "Certificate",
    "Clustering",
    "ConvexClustering",
    "KMeans",
    "Path",
    "Proximity",
    "Recovery",
    "Separability",
    "Sureness",
    "ari",
    "auto",
    "centre_separation",
    "clusterpath",
    "convex",
    "gradient",
    "kmeans",
    "matching",
    "misclustering",
    "proximity",
    "recovery_interval",
    "separability",
    "silhouette",
    "spectral",
]


def __getattr__(name: str) -> Any:
    if name in ("Auto", "ConvexClustering", "KMeans"):
        # They import scikit-learn, where it is.
        return getattr(import_module(".clusterers", __package__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@describe(
    primal="The objective at the solution.",
    dual="A lower bound of the objective anywhere.",
    gap="Their difference, at least 0.",
    undecided="Pairs of points that are proved neither together nor apart.",
)
class Certificate(NamedTuple):
    """What proves a solution of convex clustering."""

    primal: float
    dual: float
    gap: float
    undecided: int


@describe(
    lambdas="The values of λ, growing.",
    clusters="How many clusters there are.",
    labels="The cluster of every point: a row for every λ.",
    plane="Where every point is drawn to, in the two principal directions of the data: (λ, point, 2).",
    gap="The gap between the primal and the dual objective.",
)
class Path(NamedTuple):
    """Convex clustering at growing λ; one entry a value of λ."""

    lambdas: NDArray[np.float64]
    clusters: NDArray[np.int64]
    labels: NDArray[np.int64]
    plane: NDArray[np.float64]
    gap: NDArray[np.float64]


@describe(
    word="`certain`, `likely` or `unsure`.",
    reason="What the word rests on.",
)
class Sureness(NamedTuple):
    """How sure the number of clusters is."""

    word: str
    reason: str


@describe(
    labels="The cluster of every point; -1 for one that fits none and is set aside, which only `auto` does.",
    centres="The mean of every cluster, a row each.",
    sizes="How many points every cluster has.",
    lambda_="The λ of convex clustering.",
    certificate="What proves a convex clustering.",
    path="The path, where one was computed.",
    silhouettes="The mean silhouette for every number of clusters that was tried.",
    sureness="How sure the number of clusters is, where it was searched for.",
    notes="What a reader must know.",
)
class Clustering(NamedTuple):
    """What was found."""

    labels: NDArray[np.int64]
    centres: NDArray[np.float64]
    sizes: NDArray[np.int64]
    lambda_: float | None
    certificate: Certificate | None
    path: Path | None
    silhouettes: dict[int, float]
    sureness: Sureness | None
    notes: tuple[str, ...]


@describe(
    found="The least distance of two centres over the largest distance of a point to its centre.",
    for_kmeans="From which value on k-means provably finds such clusters.",
    for_convex="From which value on convex clustering does.",
)
class Separability(NamedTuple):
    """How far clusters are apart beside their size, and how far they must be."""

    found: float
    for_kmeans: float
    for_convex: float


@describe(
    lower="The smallest such λ.",
    upper="Below which λ must stay; there is none where it is not above `lower`.",
)
class Recovery(NamedTuple):
    """The λ, from and to, at which convex clustering of all pairs provably finds these clusters."""

    lower: float
    upper: float


@describe(
    largest="The largest constant for which all points satisfy the condition.",
    share="The share of points that satisfy it for the constant asked for.",
)
class Proximity(NamedTuple):
    """How points keep to their own side between two centres."""

    largest: float
    share: float


def kmeans(
    points: ArrayLike,
    clusters: int | None = None,
    *,
    starts: int = 10,
    seed: int = 0,
    standardise: bool = False,
    threads: int | None = None,
) -> Clustering:
    """k-means: Lloyd's iteration from k-means++ starts. Without `clusters` their number is chosen by silhouette."""
    return _find(points, "kmeans++", clusters=clusters, starts=starts, seed=seed, standardise=standardise, threads=threads)


def spectral(
    points: ArrayLike,
    clusters: int | None = None,
    *,
    starts: int = 10,
    seed: int = 0,
    standardise: bool = False,
    threads: int | None = None,
) -> Clustering:
    """k-means in the space of the top singular vectors, then in the full one."""
    return _find(points, "spectral", clusters=clusters, starts=starts, seed=seed, standardise=standardise, threads=threads)


def gradient(
    points: ArrayLike,
    clusters: int | None = None,
    *,
    starts: int = 10,
    seed: int = 0,
    standardise: bool = False,
    threads: int | None = None,
) -> Clustering:
    """Centres that descend."""
    return _find(points, "gradient", clusters=clusters, starts=starts, seed=seed, standardise=standardise, threads=threads)


def convex(
    points: ArrayLike,
    lambda_: float | None = None,
    *,
    path: bool = False,
    weights: str = "uniform",
    neighbours: int | None = None,
    decay: float | None = None,
    path_values: int = 50,
    standardise: bool = False,
    threads: int | None = None,
) -> Clustering:
    """Convex clustering at λ, or else at the middle of the level of its path that lasts longest.

    `weights` says which points pull at each other: `uniform`, all pairs, or `neighbours`, the nearest ones (10 unless
    `neighbours` says otherwise), with exp(-decay · distance²).
    """
    return _find(
        points,
        "convex",
        lambda_=lambda_,
        path=path,
        weights=weights,
        neighbours=neighbours,
        decay=decay,
        path_values=path_values,
        standardise=standardise,
        threads=threads,
    )


def clusterpath(
    points: ArrayLike,
    *,
    weights: str = "uniform",
    neighbours: int | None = None,
    decay: float | None = None,
    path_values: int = 50,
    standardise: bool = False,
    threads: int | None = None,
) -> Clustering:
    """Convex clustering over a range of λ, in `.path`, and the number of clusters that lasts longest."""
    return _find(
        points,
        "clusterpath",
        weights=weights,
        neighbours=neighbours,
        decay=decay,
        path_values=path_values,
        standardise=standardise,
        threads=threads,
    )


def auto(
    points: ArrayLike,
    *,
    path: bool = False,
    weights: str = "uniform",
    neighbours: int | None = None,
    decay: float | None = None,
    path_values: int = 50,
    seed: int = 0,
    standardise: bool = False,
    threads: int | None = None,
) -> Clustering:
    """Finds the number of clusters, sets points aside that fit none (label -1), and says how sure it is."""
    return _find(
        points,
        "auto",
        path=path,
        weights=weights,
        neighbours=neighbours,
        decay=decay,
        path_values=path_values,
        seed=seed,
        standardise=standardise,
        threads=threads,
    )


def ari(found: ArrayLike, truth: ArrayLike) -> float:
    """The Rand index, corrected for chance: 1 for equal clusterings, around 0 for unrelated ones."""
    return _kinfolk.ari(found, truth)


def misclustering(found: ArrayLike, truth: ArrayLike) -> float:
    """The share of points outside the best one-to-one matching of clusters."""
    return _kinfolk.misclustering(found, truth)


def matching(found: ArrayLike, truth: ArrayLike) -> dict[int, int]:
    """The true cluster that each found one stands for, in the matching that agrees on the most points."""
    return dict(_kinfolk.matching(found, truth))


def silhouette(points: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> float | None:
    """The mean silhouette, of a sample where there are very many points; `None` for one cluster."""
    return _kinfolk.silhouette(points, labels, seed)


def separability(points: ArrayLike, labels: ArrayLike) -> Separability | None:
    """How far clusters are apart beside their size; `None` for one cluster."""
    found = _kinfolk.separability(points, labels)
    return None if found is None else Separability(*found)


def recovery_interval(points: ArrayLike, labels: ArrayLike) -> Recovery:
    """The λ at which convex clustering provably finds these clusters; empty where `lower` is not below `upper`."""
    return Recovery(*_kinfolk.recovery_interval(points, labels))


def centre_separation(points: ArrayLike, labels: ArrayLike) -> float | None:
    """The largest constant for which centres count as separated; `None` for one cluster."""
    return _kinfolk.centre_separation(points, labels)


def proximity(points: ArrayLike, labels: ArrayLike, constant: float) -> Proximity | None:
    """The proximity condition of spectral k-means; `None` for one cluster."""
    found = _kinfolk.proximity(points, labels, constant)
    return None if found is None else Proximity(*found)


def _find(points: ArrayLike, method: str, **options: Any) -> Clustering:
    labels, centres, sizes, lambda_, certificate, path, silhouettes, sureness, notes = _kinfolk.find(
        points, method, **options
    )
    return Clustering(
        labels,
        centres,
        sizes,
        lambda_,
        certificate and Certificate(*certificate),
        path and Path(*path),
        silhouettes,
        sureness and Sureness(*sureness),
        notes,
    )
