"""scikit-learn's base classes and checks; where it is not installed, what stands in for them."""

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin, DensityMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
except ImportError:
    from .without_sklearn import (
        BaseEstimator,
        ClassifierMixin,
        ClusterMixin,
        DensityMixin,
        RegressorMixin,
        check_classification_targets,
        check_consistent_length,
        check_is_fitted,
        validate_data,
    )

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "ClusterMixin",
    "DensityMixin",
    "RegressorMixin",
    "check_classification_targets",
    "check_consistent_length",
    "check_is_fitted",
    "validate_data",
]
