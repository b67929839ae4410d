"""What stands in for scikit-learn where it is not installed: parameters, and the least checks of what is fitted."""

from __future__ import annotations

from inspect import signature
from typing import Any, TypeVar

import numpy as np

Estimator = TypeVar("Estimator", bound="BaseEstimator")


class BaseEstimator:
    """Parameters are what the constructor takes."""

    @classmethod
    def _parameters(cls) -> dict[str, Any]:
        taken = signature(cls).parameters.values()
        return {parameter.name: parameter.default for parameter in taken}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self: Estimator, **params: Any) -> Estimator:
        """Changes parameters by name."""
        known = self._parameters()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"Invalid parameter {name!r}: want one of {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        changed = (f"{name}={getattr(self, name)!r}" for name, usual in self._parameters().items() if getattr(self, name) != usual)
        return f"{type(self).__name__}({', '.join(changed)})"


class RegressorMixin:
    """Says that it predicts numbers."""

    _estimator_type = "regressor"


class ClassifierMixin:
    """Says that it predicts classes."""

    _estimator_type = "classifier"


class DensityMixin:
    """Says that it tells how dense rows are."""

    _estimator_type = "density_estimator"


class ClusterMixin:
    """Says that it clusters, and gives labels at once."""

    _estimator_type = "clusterer"

    def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> Any:
        """The cluster of every row."""
        return self.fit(X, **kwargs).labels_  # type: ignore[attr-defined]


def check_classification_targets(y: Any) -> None:
    """Refuses numbers that are not whole: they are no classes."""
    if y.dtype.kind == "f" and np.any(y != np.floor(y)):
        raise ValueError("y: got numbers that are not whole, want classes")


def check_consistent_length(*arrays: Any) -> None:
    """Refuses arrays of different lengths."""
    lengths = [len(array) for array in arrays if array is not None]
    if len(set(lengths)) > 1:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {lengths}")


def check_is_fitted(estimator: Any) -> None:
    """Refuses what is not fitted yet."""
    if not hasattr(estimator, "n_features_in_"):
        raise AttributeError(f"This {type(estimator).__name__} instance is not fitted yet. Call 'fit' first.")


def validate_data(
    estimator: Any,
    X: Any = "no_validation",
    y: Any = "no_validation",
    *,
    reset: bool = True,
    skip_check_array: bool = False,
    y_numeric: bool = False,
    **_: Any,
) -> Any:
    """Checks rows, or targets; rows set what the estimator knows of columns, or are checked against it."""
    if isinstance(X, str):
        return _numbers(y, "y", 1) if y_numeric else np.asarray(y)
    rows = X if skip_check_array else _numbers(X, "X", 2)
    names = [name for name in getattr(X, "columns", ()) if isinstance(name, str)]
    features = rows.shape[1]
    if reset:
        estimator.n_features_in_ = features
        vars(estimator).pop("feature_names_in_", None)
        if len(names) == features:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        return rows
    if features != estimator.n_features_in_:
        raise ValueError(
            f"X has {features} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} features as input."
        )
    known = getattr(estimator, "feature_names_in_", None)
    if known is not None and names and names != list(known):
        raise ValueError("The feature names should match those that were passed during fit.")
    return rows


def _numbers(values: Any, name: str, dimensions: int) -> np.ndarray[Any, Any]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions:
        raise ValueError(f"{name}: got the shape {array.shape}, want {dimensions} dimensions")
    if dimensions == 1 and not np.isfinite(array).all():
        raise ValueError(f"Input {name} contains NaN or infinity.")
    return array
