"""The images that come with the package."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _kinfolk


class Digits(NamedTuple):
    """Handwritten digits of 8×8 pixels from 0 to 255, and which digit each is."""

    train_images: NDArray[np.uint8]
    """1440 images."""
    train_labels: NDArray[np.int64]
    """What they show."""
    test_images: NDArray[np.uint8]
    """357 images by other writers."""
    test_labels: NDArray[np.int64]
    """What they show."""


def digits() -> Digits:
    """The 1797 digits that `data.source = "digits"` uses (E. Alpaydin, C. Kaynak 1998, CC BY 4.0)."""
    train, test = _kinfolk.digits()
    return Digits(*train, *test)
