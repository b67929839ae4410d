"""scikit-learn's base classes and checks; where it is not installed, what stands in for them."""

try:
    from sklearn.base import BaseEstimator, ClusterMixin, RegressorMixin
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
except ImportError:
    from .without_sklearn import (
        BaseEstimator,
        ClusterMixin,
        RegressorMixin,
        check_consistent_length,
        check_is_fitted,
        validate_data,
    )

__all__ = [
    "BaseEstimator",
    "ClusterMixin",
    "RegressorMixin",
    "check_consistent_length",
    "check_is_fitted",
    "validate_data",
]
