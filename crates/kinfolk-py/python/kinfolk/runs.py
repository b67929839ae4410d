"""Runs: an experiment from start to end, and what it left in its folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from . import _kinfolk
from .clients import Client
from .progress import find_display
from .tables import Table, html_table

Key = TypeVar("Key")
Value = TypeVar("Value")
Tensors = dict[str, "np.ndarray[Any, Any]"]


def run(
    experiment: str | os.PathLike[str] | Mapping[str, Any],
    *,
    out: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    repeat: int | None = None,
    threads: int | None = None,
    resume: bool = False,
    tune: bool = False,
    progress: bool | Callable[[dict[str, Any]], object] | None = None,
    clients: Mapping[str, Client] | None = None,
    start: ArrayLike | Callable[[int], ArrayLike] | None = None,
    single_answers: bool = False,
    **overrides: Any,
) -> Run:
    """Runs an experiment to its end.

    `experiment` is a file, the name of a preset, or a dict with the keys of a file. Overrides change its settings:
    `data={"clients": 50}`, `method={"ifca": {"step": 0.05}}`, or `**{"method.ifca.step": 0.05}`. Results go to the
    folder `out`, or else to runs/NAME-TIME; `resume` goes on with an unfinished run in `out`. `tune` chooses strengths
    of personal models by cross-validation.

    `clients` are objects of your own by id, in place of the experiment's data and model; see `kinfolk.Client`. Their
    models begin at `start`: an array of parameters, or a function that makes one from a seed. Where a method wants
    several different starts, the function is called with several seeds, and an array is moved by noise of a tenth of the
    spread of its numbers (of 0.1 where all are equal).

    `single_answers` sums what clients answer one by one, as integers unless the experiment has `sums = "float"`: the bits that
    clients on other machines give.

    Progress is shown in a terminal and in a notebook; `progress=False` keeps silent, and a function is called with
    a dict for every event: `doing`, `planned`, `method`, `round`, `finished`.

    Raises `kinfolk.Error` for faults of the input, all at once, before work starts. A method that fails or diverges is
    part of the result. Ctrl-C ends the run at its last checkpoint, and raises KeyboardInterrupt.
    """
    top = {"seed": seed, "repeat": repeat}
    overrides.update((name, value) for name, value in top.items() if value is not None)
    with find_display(progress) as display:
        folder = _kinfolk.run(
            experiment,
            overrides,
            out=out,
            threads=threads,
            resume=resume,
            tune=tune,
            progress=display,
            clients=clients,
            start=start,
            single_answers=single_answers,
        )
    return Run(folder)


def load(folder: str | os.PathLike[str]) -> Any:
    """What is in a folder: the `Run` that was finished there, or the `FamilyRegressor` or `FamilyClassifier` that was saved."""
    if (Path(folder) / "model.json").is_file():
        # It imports scikit-learn, where it is.
        return import_module(".families", __package__).load_fitted(folder)
    return Run(folder)


class Run:
    """A finished run: what is in its folder.

    - `folder`: where everything is
    - `summary`: summary.json
    - `clients`: clients.csv, how every client ended
    - `rounds`: rounds.csv, what every round did

    Pickled, it takes these along; models and the report stay in the folder.
    """

    folder: Path
    summary: dict[str, Any]
    clients: Table
    rounds: Table

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        text = _kinfolk.read_summary(self.folder)
        self.summary = json.loads(text)
        self._text, self._headings, self._rows, self._remarks = _kinfolk.result_table(text)
        self.clients = Table(_kinfolk.read_clients(self.folder))
        self.rounds = Table(_kinfolk.read_rounds(self.folder))

    @property
    def models(self) -> Lazy[str, Seeds]:
        """Trained models, read when asked for: `run.models[label][seed][name][tensor]`.

        Names are those of the files: `cluster-0`, `client-ID`, `global`; for an id that is no name of a file,
        `clients.csv` beside the models says which it is. Of a run of one seed, `run.models[label][name]` will do.
        """
        folder = self.folder / "models"
        return Lazy(_folders(folder), partial(_seeds, folder))

    def report(self) -> Report:
        """The report page."""
        return Report(self.folder / "report.html")

    def __repr__(self) -> str:
        return f"{self._text}\nfolder: {self.folder}"

    def _repr_html_(self) -> str:
        remarks = "".join(f"<p>{escape(remark)}</p>" for remark in self._remarks)
        return f"{html_table(self._headings, self._rows)}{remarks}<p>folder: <code>{escape(str(self.folder))}</code></p>"


class Report(os.PathLike[str]):
    """The path of a report page; a notebook shows the page itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Report({str(self.path)!r})"

    def _repr_html_(self) -> str:
        page = escape(self.path.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'


class Lazy(Mapping[Key, Value], Generic[Key, Value]):
    """A mapping whose values are made when they are asked for."""

    def __init__(self, keys: list[Key], make: Callable[[Key], Value]) -> None:
        self._keys = keys
        self._make = make
        self._made: dict[Key, Value] = {}

    def __getitem__(self, key: Key) -> Value:
        if key not in self._made:
            if key not in self._keys:
                raise KeyError(f"got {key!r}, want one of {', '.join(map(repr, self._keys))}")
            self._made[key] = self._make(key)
        return self._made[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{key!r}: …' for key in self._keys)}}}"


class Seeds(Lazy["int | str", Any]):
    """The models of one method by seed; those of the only seed also by their own names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__(sorted(int(seed) for seed in _folders(folder)), self._models)

    def __getitem__(self, key: int | str) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if len(self) == 1:
            return super().__getitem__(next(iter(self)))[key]
        raise KeyError(f"got {key!r}, want a seed first, one of {', '.join(map(str, self))}")

    def _models(self, seed: int | str) -> Lazy[str, Tensors]:
        folder = self._folder / str(seed)
        names = sorted((path.stem for path in folder.glob("*.safetensors")), key=_numbers_last)
        return Lazy(names, partial(_tensors, folder))


# Functions by name, where a lambda would do: these can be pickled.
def _seeds(folder: Path, label: str) -> Seeds:
    return Seeds(folder / label)


def _tensors(folder: Path, name: str) -> Tensors:
    return _kinfolk.read_model(folder / f"{name}.safetensors")


def _folders(folder: Path) -> list[str]:
    """The folders in a folder that may not be there."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _numbers_last(name: str) -> tuple[str, int, str]:
    """Has `cluster-10` come after `cluster-9`."""
    words, _, number = name.rpartition("-")
    return (words, int(number), "") if number.isdecimal() else (name, -1, number)
