"""What the tests share: a folder of their own, a small experiment, and the program to compare with."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kinfolk

ROOT = Path(__file__).parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
"""Where cargo builds."""
LIMIT = 600
"""Seconds after which a test has hung; each takes a few."""

TINY: dict[str, Any] = {
    "name": "tiny",
    "evaluate_every": 5,
    "data": {
        "source": "linear",
        "clients": 12,
        "samples": 20,
        "test_samples": 10,
        "unseen_clients": 4,
        "dimension": 5,
    },
    "model": {"kind": "linear", "intercept": False},
    "method": [
        {"name": "ifca", "clusters": 2, "rounds": 12, "step": 0.1},
        {"name": "fedavg", "rounds": 12, "step": 0.1},
        {"name": "local", "rounds": 2, "step": 0.1},
    ],
}


@pytest.fixture
def tiny() -> dict[str, Any]:
    """Two planted families of linear clients, three methods."""
    return copy.deepcopy(TINY)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Every test can be interrupted, and is after a while.

    A shell that starts the tests in the background has Ctrl-C ignored, by them and by what they start.
    """

    def give_up(*_: object) -> None:
        raise TimeoutError(f"a test took more than {LIMIT} seconds")

    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGALRM)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    for number, handler in before:
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> kinfolk.Run:
    """A run of two seeds, to look at."""
    return kinfolk.run(copy.deepcopy(TINY), out=tmp_path_factory.mktemp("finished") / "run", repeat=2)


@pytest.fixture(scope="session")
def program() -> str:
    """The command line, as `cargo build` leaves it; KINFOLK_CLI names another."""
    path = Path(os.environ.get("KINFOLK_CLI", TARGET / "debug" / "kinfolk"))
    assert path.is_file(), f"{path}: not built; `cargo build -p kinfolk-cli`, or set KINFOLK_CLI"
    return str(path)
