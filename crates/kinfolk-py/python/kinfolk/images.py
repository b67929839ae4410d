"""The images that come with the package."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _kinfolk
from .fields import describe


@describe(
    train_images="1440 images.",
    train_labels="What they show.",
    test_images="357 images by other writers.",
    test_labels="What they show.",
)
class Digits(NamedTuple):
    """Handwritten digits of 8×8 pixels from 0 to 255, and which digit each is."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]


def digits() -> Digits:
    """The 1797 digits that `data.source = "digits"` uses (E. Alpaydin, C. Kaynak 1998, CC BY 4.0)."""
    train, test = _kinfolk.digits()
    return Digits(*train, *test)
