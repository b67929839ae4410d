"""Clusterers with scikit-learn's conventions, for pipelines and searches; the functions of `kinfolk.cluster` do the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from . import cluster
from .conventions import BaseEstimator, ClusterMixin, check_is_fitted, validate_data

if TYPE_CHECKING:
    from numpy.typing import NDArray

Model = TypeVar("Model", bound="Clusterer")


class Clusterer(ClusterMixin, BaseEstimator):
    """What clusterers have in common.

    Fitted, it has `labels_`, the cluster of every row, `cluster_centers_`, and `clustering_`, all that was found.
    """

    clustering_: cluster.Clustering

    def fit(self: Model, X: Any, y: Any = None) -> Model:
        """Clusters the rows of `X`."""
        points = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        self.clustering_ = self._find(points)
        self.labels_ = self.clustering_.labels
        self.cluster_centers_ = self.clustering_.centres
        return self

    def __sklearn_is_fitted__(self) -> bool:
        # By its name, the parameter `lambda_` might be taken for something fitted.
        return hasattr(self, "clustering_")

    def _find(self, points: NDArray[np.float64]) -> cluster.Clustering:
        raise NotImplementedError


class KMeans(Clusterer):
    """k-means: Lloyd's iteration from k-means++ starts. Without `clusters` their number is chosen by silhouette."""

    def __init__(
        self,
        clusters: int | None = None,
        *,
        starts: int = 10,
        seed: int = 0,
        standardise: bool = False,
        threads: int | None = None,
    ) -> None:
        self.clusters = clusters
        self.starts = starts
        self.seed = seed
        self.standardise = standardise
        self.threads = threads

    def _find(self, points: NDArray[np.float64]) -> cluster.Clustering:
        deviation = points.std(0)
        self._scale = np.where(deviation > 0, deviation, 1.0) if self.standardise else np.ones(points.shape[1])
        return cluster.kmeans(points, **self.get_params())

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The cluster whose centre is nearest."""
        check_is_fitted(self)
        points = validate_data(self, X, dtype=np.float64, reset=False)
        # Distances count in the units that clusters were found in.
        points, centres = points / self._scale, self.cluster_centers_ / self._scale
        distances = (centres**2).sum(1) - 2 * points @ centres.T
        return np.asarray(distances.argmin(1), dtype=np.int64)


class ConvexClustering(Clusterer):
    """Convex clustering at `lambda_`, or else at the middle of the level of its path that lasts longest.

    `weights` says which points pull at each other: `uniform`, all pairs, or `neighbours`, the nearest ones.
    """

    def __init__(
        self,
        lambda_: float | None = None,
        *,
        weights: str = "uniform",
        neighbours: int | None = None,
        decay: float | None = None,
        path_values: int = 50,
        standardise: bool = False,
        threads: int | None = None,
    ) -> None:
        self.lambda_ = lambda_
        self.weights = weights
        self.neighbours = neighbours
        self.decay = decay
        self.path_values = path_values
        self.standardise = standardise
        self.threads = threads

    def _find(self, points: NDArray[np.float64]) -> cluster.Clustering:
        return cluster.convex(points, **self.get_params())


class Auto(Clusterer):
    """Finds the number of clusters, and sets points aside that fit none (label -1)."""

    def __init__(self, *, seed: int = 0, standardise: bool = False, threads: int | None = None) -> None:
        self.seed = seed
        self.standardise = standardise
        self.threads = threads

    def _find(self, points: NDArray[np.float64]) -> cluster.Clustering:
        return cluster.auto(points, **self.get_params())
