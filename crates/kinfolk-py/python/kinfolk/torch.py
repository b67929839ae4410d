"""PyTorch modules as models of your own: state dicts as flat vectors, and a client that trains a module by a plan."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from .clients import Plan, Score

Vector = npt.NDArray[np.float32]
CHUNK = 4096
"""Rows that are looked at together where no gradient is wanted."""
_GENERATOR = threading.Lock()


def to_vector(source: nn.Module | Mapping[str, Tensor]) -> Vector:
    """The numbers of a module, or of its state dict, in one array and in the order of the state dict.

    Parameters and buffers of floating point are in it, such as the running statistics of batch normalisation: they
    travel and are averaged too. Whole numbers, such as counts of batches, stay where they are.
    """
    parts = [tensor.detach().to("cpu", torch.float32).reshape(-1) for tensor in _numbers(source)]
    return torch.cat(parts).numpy() if parts else np.zeros(0, np.float32)


def load_vector(module: nn.Module, vector: npt.ArrayLike) -> None:
    """Puts the numbers of a vector into a module, in place: what `to_vector` took out of such a module."""
    values = torch.from_numpy(np.array(vector, np.float32))
    wanted = sum(tensor.numel() for tensor in _numbers(module))
    if values.shape != (wanted,):
        raise ValueError(f"got a vector of shape {tuple(values.shape)}, want ({wanted},) for {type(module).__name__}")
    place = 0
    with torch.no_grad():
        for tensor in _numbers(module):
            tensor.copy_(values[place : place + tensor.numel()].reshape(tensor.shape))
            place += tensor.numel()


def _numbers(source: nn.Module | Mapping[str, Tensor]) -> Iterator[Tensor]:
    state = source.state_dict() if isinstance(source, nn.Module) else source
    return (tensor for tensor in state.values() if tensor.is_floating_point())


class TorchClient:
    """A client that trains a module on rows of its own, as the plan says.

    `train` and `test` are inputs and targets, as tensors or arrays; without `test` it is not scored. `loss` is a mean
    over rows. Rows are counted as right where the largest output is at the target, for targets that are whole numbers.
    The module is copied: every client has one to itself.

    Batches are drawn from the plan's seed. Layers that draw, such as dropout, do so from PyTorch's only generator, which
    the plan seeds as well; so clients train one after the other, each on as many threads as PyTorch has.
    """

    def __init__(
        self,
        module: nn.Module,
        train: tuple[Any, Any],
        test: tuple[Any, Any] | None = None,
        *,
        loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
        group: str | None = None,
        truth: int | None = None,
    ) -> None:
        self._module = copy.deepcopy(module)
        state = self._module.state_dict()
        self._counts = {name: value.clone() for name, value in state.items() if not value.is_floating_point()}
        self._device = next((tensor.device for tensor in _numbers(module)), torch.device("cpu"))
        self._rows = self._take(train)
        self._held_out = None if test is None else self._take(test)
        self._loss = loss
        self.rows = len(self._rows[0])
        self.group = group
        self.truth = truth

    def loss(self, parameters: Vector) -> float:
        """The mean loss over its training rows."""
        self._load(parameters)
        return self._judge(self._rows).loss

    def train(self, parameters: Vector, plan: Plan) -> tuple[Vector, float]:
        """Parameters after the plan's steps, and the loss of the first batch before them."""
        self._load(parameters)
        self._module.train()
        learned = list(self._module.parameters())
        optimiser = _optimiser(learned, plan)
        average, first_loss = torch.from_numpy(to_vector(self._module)), float("nan")
        with self._drawing(plan.seed):
            for count, picked in enumerate(self._batches(plan), start=1):
                loss = self._slope(picked)
                if count == 1:
                    first_loss = loss
                if plan.tolerance > 0 and _slope_length(learned, plan.weight_decay) <= plan.tolerance:
                    break
                if plan.fading:
                    optimiser.param_groups[0]["lr"] = plan.step / count
                optimiser.step()
                if plan.averaged:
                    # The mean with weights 1, 2, …, count.
                    average += 2 / (count + 1) * (torch.from_numpy(to_vector(self._module)) - average)
        return (average.numpy() if plan.averaged else to_vector(self._module)), first_loss

    def gradient(self, parameters: Vector, plan: Plan) -> tuple[Vector, float]:
        """The gradient of the mean loss over a batch, and that loss; 0 for what no gradient changes."""
        self._load(parameters)
        self._module.train()
        with self._drawing(plan.seed):
            loss = self._slope(next(self._batches(plan)))
        slopes = {name: value.grad for name, value in self._module.named_parameters(remove_duplicate=False) if value.grad is not None}
        state = self._module.state_dict()
        return to_vector({name: slopes.get(name, torch.zeros_like(value)) for name, value in state.items()}), loss

    def score(self, parameters: Vector) -> Score:
        """How good a module is on the rows it held out; where these are none, the loss is that of its training rows."""
        self._load(parameters)
        if self._held_out is None:
            return self._judge(self._rows)._replace(rows=0, hits=None)
        return self._judge(self._held_out)

    def save(self) -> bytes:
        """Nothing: between two calls a client has nothing to remember."""
        return b""

    def load(self, state: bytes) -> None:
        """Nothing: see `save`."""

    @contextmanager
    def _drawing(self, seed: int) -> Iterator[None]:
        """PyTorch's generator for this client alone, seeded, and afterwards as it was."""
        devices = [self._device] if self._device.type == "cuda" else []
        with _GENERATOR, torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield

    def _load(self, parameters: Vector) -> None:
        """Has the module be as in the beginning, but for these parameters: an answer depends on nothing before it."""
        load_vector(self._module, parameters)
        state = self._module.state_dict()
        for name, value in self._counts.items():
            state[name].copy_(value)

    def _take(self, rows: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
        inputs, targets = (torch.as_tensor(part).to(self._device) for part in rows)
        if len(inputs) != len(targets) or len(inputs) == 0:
            raise ValueError(f"got {len(inputs)} inputs and {len(targets)} targets, want as many and at least 1")
        return inputs, targets

    def _batches(self, plan: Plan) -> Iterator[Tensor | None]:
        """The rows of every step: batches without replacement, shuffled anew in every pass. None is all rows."""
        size = min(plan.batch or self.rows, self.rows)
        steps = plan.steps if plan.steps is not None else (plan.epochs or 0) * -(-self.rows // size)
        if size == self.rows:
            yield from [None] * steps
            return
        generator = torch.Generator().manual_seed(plan.seed)
        order: list[Tensor] = []
        for _ in range(steps):
            if not order:
                order = list(_chunks(torch.randperm(self.rows, generator=generator).to(self._device), size))
            yield order.pop(0)

    def _slope(self, picked: Tensor | None) -> float:
        """Leaves the gradient of the mean loss over some rows in the module; returns that loss."""
        inputs, targets = self._rows if picked is None else (part[picked] for part in self._rows)
        self._module.zero_grad()
        loss = self._loss(self._module(inputs), targets)
        torch.autograd.backward(loss)
        return float(loss.item())

    def _judge(self, rows: tuple[Tensor, Tensor]) -> Score:
        self._module.eval()
        total, hits, count = 0.0, 0, len(rows[0])
        counts_hits = not rows[1].is_floating_point()
        with torch.no_grad():
            for inputs, targets in zip(*(_chunks(part, CHUNK) for part in rows), strict=True):
                outputs = self._module(inputs)
                total += self._loss(outputs, targets).item() * len(inputs)
                if counts_hits:
                    hits += int((outputs.argmax(1) == targets).sum())
        return Score(rows=count, loss=total / count, hits=hits if counts_hits else None)


def _optimiser(learned: list[nn.Parameter], plan: Plan) -> torch.optim.Optimizer:
    if plan.optimiser == "adam":
        return torch.optim.Adam(learned, plan.step, weight_decay=plan.weight_decay)
    return torch.optim.SGD(learned, plan.step, momentum=plan.momentum, weight_decay=plan.weight_decay)


def _slope_length(learned: list[nn.Parameter], weight_decay: float) -> float:
    slopes = ((value.grad + weight_decay * value.detach()).square().sum() for value in learned if value.grad is not None)
    return math.sqrt(sum(slopes))


def _chunks(tensor: Tensor, size: int) -> Iterator[Tensor]:
    return (tensor[begin : begin + size] for begin in range(0, len(tensor), size))
