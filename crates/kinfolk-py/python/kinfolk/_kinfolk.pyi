"""The compiled part. Use what `kinfolk` exports."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .clients import Client

__version__: str

RegistryEntry = tuple[str, str, list[tuple[str, str | None, str, str]]]

class Error(Exception):
    """What was at fault: the message says where, what was found and what was wanted; `kind` is a word to act on."""

    kind: str
    """settings, data, shape, diverged, client, federation, io, unsupported or stopped."""
    told: str
    """What another machine may hear of it: no cells, no paths, no code."""

class Columns:
    def __init__(self, columns: list[tuple[str, str, list[Any]]]) -> None: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def rows(self) -> int: ...
    def values(self, name: str) -> list[str] | np.ndarray[Any, Any]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Rows:
    """A table in memory."""

    @staticmethod
    def of_arrow(table: object) -> Rows: ...
    @staticmethod
    def of_columns(columns: list[tuple[str, Any]]) -> Rows: ...
    @property
    def names(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def renamed(self, names: list[str]) -> Rows: ...
    def with_columns(self, columns: list[tuple[str, Any]]) -> Rows: ...
    def without(self, name: str) -> Rows: ...

class Fitted:
    """What was fitted."""

    def __init__(self, text: str) -> None: ...
    @property
    def client(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def classes(self) -> list[str]: ...
    @property
    def clients(self) -> list[str]: ...
    @property
    def columns(self) -> list[str]: ...
    @property
    def understood(self) -> list[str]: ...
    def predict(
        self, rows: Rows, threads: int | None, with_serving: bool
    ) -> tuple[NDArray[np.float64], list[str]]: ...
    def following(self, before: Fitted) -> Fitted: ...
    def assign(self, rows: Rows, add: bool) -> tuple[str, Fitted | None]: ...
    def shown(self) -> str: ...
    def show(self, family: int | None = None, client: str | None = None) -> str: ...
    def file(self, name: str) -> str: ...
    def save(self, folder: os.PathLike[str], replace: bool) -> None: ...

def fit(
    rows: Rows,
    *,
    client: str,
    target: str,
    classes: bool,
    group: str | None,
    time: str | None,
    part: str | None,
    weight: str | None,
    drop: list[str],
    words: list[str],
    missing: str,
    families: int | None,
    curves: bool,
    interactions: bool,
    covariance: str | None,
    quick: bool,
    seed: int,
    threads: int | None,
) -> Fitted: ...
def read_fitted(folder: os.PathLike[str]) -> Fitted | FittedMixture: ...

class FittedMixture:
    """A fitted mixture."""

    def __init__(self, text: str) -> None: ...
    @property
    def client(self) -> str: ...
    @property
    def clients(self) -> list[str]: ...
    @property
    def columns(self) -> list[str]: ...
    @property
    def understood(self) -> list[str]: ...
    def components(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]: ...
    def predict(self, rows: Rows, threads: int | None) -> tuple[NDArray[np.float64], list[str]]: ...
    def assign(self, rows: Rows, add: bool) -> tuple[str, FittedMixture | None]: ...
    def shown(self) -> str: ...
    def show(self, family: int | None = None, client: str | None = None) -> str: ...
    def file(self, name: str) -> str: ...
    def save(self, folder: os.PathLike[str], replace: bool) -> None: ...

def fit_mixture(
    rows: Rows,
    *,
    client: str,
    group: str | None,
    time: str | None,
    part: str | None,
    drop: list[str],
    families: int | None,
    components: int | None,
    seed: int,
    threads: int | None,
) -> FittedMixture: ...
def run(
    experiment: str | os.PathLike[str] | Mapping[str, Any],
    overrides: dict[str, Any],
    *,
    out: str | os.PathLike[str] | None,
    threads: int | None,
    resume: bool,
    tune: bool,
    progress: Callable[[dict[str, Any]], object] | None,
    clients: Mapping[str, Client] | None = None,
    start: ArrayLike | Callable[[int], ArrayLike] | None = None,
    single_answers: bool = False,
) -> Path: ...
def run_remote(
    experiment: str | os.PathLike[str] | Mapping[str, Any],
    overrides: dict[str, Any],
    machines: Callable[[], list[int]],
    exchange: Callable[[list[tuple[int, bytes]], str], list[tuple[int, bytes | None, str | None]]],
    *,
    out: str | os.PathLike[str] | None,
    start: ArrayLike | Callable[[int], ArrayLike] | None,
    progress: Callable[[dict[str, Any]], object] | None,
) -> Path: ...

def fit_remote(
    file: Mapping[str, Any],
    machines: Callable[[], list[int]],
    exchange: Callable[[list[tuple[int, bytes]], str], list[tuple[int, bytes | None, str | None]]],
    *,
    out: str | os.PathLike[str] | None,
    told: Callable[[list[str]], object],
) -> Path: ...

class Site:
    """The clients of one machine: as its own file says, a part of the experiment's dataset, or the user's own objects."""

    def __init__(
        self,
        *,
        node: str | os.PathLike[str] | None = None,
        partition: tuple[int, int] | None = None,
        clients: Mapping[str, object] | None = None,
    ) -> None: ...
    def answer(self, message: bytes, state: bytes) -> tuple[bytes, bytes, list[str]]: ...

def digits() -> tuple[tuple[NDArray[np.uint8], NDArray[np.int64]], tuple[NDArray[np.uint8], NDArray[np.int64]]]: ...
def read_summary(folder: os.PathLike[str]) -> str: ...
def result_table(summary: str) -> tuple[str, list[str], list[list[str]], list[str]]: ...
def read_clients(folder: os.PathLike[str]) -> Columns: ...
def read_rounds(folder: os.PathLike[str]) -> Columns: ...
def read_model(path: os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]: ...
def methods() -> list[RegistryEntry]: ...
def models() -> list[RegistryEntry]: ...
def datasets() -> list[RegistryEntry]: ...
def presets() -> list[RegistryEntry]: ...
def find(
    points: ArrayLike,
    method: str,
    *,
    clusters: int | None = None,
    lambda_: float | None = None,
    path: bool = False,
    weights: str | None = None,
    neighbours: int | None = None,
    decay: float | None = None,
    starts: int | None = None,
    path_values: int | None = None,
    seed: int = 0,
    standardise: bool = False,
    threads: int | None = None,
) -> tuple[
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.int64],
    float | None,
    tuple[float, float, float, int] | None,
    tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]] | None,
    dict[int, float],
    tuple[str, str] | None,
    tuple[str, ...],
]: ...
def ari(found: ArrayLike, truth: ArrayLike) -> float: ...
def misclustering(found: ArrayLike, truth: ArrayLike) -> float: ...
def matching(found: ArrayLike, truth: ArrayLike) -> list[tuple[int, int]]: ...
def silhouette(points: ArrayLike, labels: ArrayLike, seed: int = 0) -> float | None: ...
def separability(points: ArrayLike, labels: ArrayLike) -> tuple[float, float, float] | None: ...
def recovery_interval(points: ArrayLike, labels: ArrayLike) -> tuple[float, float]: ...
def centre_separation(points: ArrayLike, labels: ArrayLike) -> float | None: ...
def proximity(points: ArrayLike, labels: ArrayLike, constant: float) -> tuple[float, float] | None: ...
