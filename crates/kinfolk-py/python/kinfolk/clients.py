"""Clients of your own: any object with a few verbs can be one."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.floating[Any]]
"""Parameters or a gradient: an array with one axis."""


class Plan(NamedTuple):
    """How a client is to train.

    A client does as much of it as it can; what it leaves out is its own affair, and changes what a method finds.
    """

    steps: int | None = 1
    """How many steps to take; None where passes are counted instead."""
    epochs: int | None = None
    """How many passes over the rows to make; None where steps are counted instead."""
    batch: int | None = None
    """Rows in a step; None is all of them."""
    step: float = 0.1
    """Step size (learning rate)."""
    optimiser: Literal["descent", "adam"] = "descent"
    """How gradients become steps."""
    momentum: float = 0.0
    """Momentum of descent."""
    weight_decay: float = 0.0
    """Pull of the parameters towards 0, added to the gradient."""
    seed: int = 0
    """Seeds all that is drawn, below 2**32: another one for every client and round, the same in every run."""
    fading: bool = False
    """Whether step t, from 1, is the step size divided by t (ODCL's `pace = "inverse"`)."""
    averaged: bool = False
    """Whether the mean of the models after each step is wanted, weighted by t (ODCL's `iterate = "average"`)."""
    tolerance: float = 0.0
    """No further step once the gradient is no longer than this."""


class Score(NamedTuple):
    """How good a model is on rows that a client held out."""

    rows: int
    """How many rows."""
    loss: float
    """Their mean loss."""
    hits: int | None = None
    """How many of them were predicted right, for `metric = "accuracy"`."""


class Client(Protocol):
    """What an object needs to be a client; a class need not name this as its base.

    It may also have

    - `gradient(parameters, plan)`: the gradient of the mean loss, or the gradient and the loss; of the plan only `batch`
      and `seed` matter
    - `score(parameters) -> Score`: on rows it held out
    - `save() -> bytes` and `load(state: bytes)`: all that changes in it, so that a run can be resumed, and every method
      begins with clients as they were in the beginning
    - `rows`: how many training rows it has, 1 if absent; `group`: the name of a group it is known to belong to;
      `truth`: the number of the cluster it was planted in, for the evaluation alone.
    """

    def loss(self, parameters: Any, /) -> float:
        """The mean loss over its training rows."""

    def train(self, parameters: Any, plan: Plan, /) -> Vector | tuple[Vector, float]:
        """Trained parameters, or these and the loss before the first step. `parameters` may be changed in place."""
