"""Clients of your own: any object with a few verbs can be one."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from .fields import describe

Vector = npt.NDArray[np.floating[Any]]
"""Parameters or a gradient: an array with one axis."""


@describe(
    steps="How many steps to take; None where passes are counted instead.",
    epochs="How many passes over the rows to make; None where steps are counted instead.",
    batch="Rows in a step; None is all of them.",
    step="Step size (learning rate).",
    optimiser="How gradients become steps.",
    momentum="Momentum of descent.",
    weight_decay="Pull of the parameters towards 0, added to the gradient.",
    seed="Seeds all that is drawn, below 2**32: another one for every client and round, the same in every run.",
    fading='Whether step t, from 1, is the step size divided by t (`pace = "inverse"` of ODCL).',
    averaged='Whether the mean of the models after each step is wanted, weighted by t (`iterate = "average"` of ODCL).',
    tolerance="No further step once the gradient is no longer than this.",
)
class Plan(NamedTuple):
    """How a client is to train.

    A client does as much of it as it can; what it leaves out is its own affair, and changes what a method finds.
    """

    steps: int | None = 1
    epochs: int | None = None
    batch: int | None = None
    step: float = 0.1
    optimiser: Literal["descent", "adam"] = "descent"
    momentum: float = 0.0
    weight_decay: float = 0.0
    seed: int = 0
    fading: bool = False
    averaged: bool = False
    tolerance: float = 0.0


@describe(
    rows="How many rows.",
    loss="Their mean loss.",
    hits='How many of them were predicted right, for `metric = "accuracy"`.',
)
class Score(NamedTuple):
    """How good a model is on rows that a client held out."""

    rows: int
    loss: float
    hits: int | None = None


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
