"""What runs have left, and waiting for it."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loopback import Loopback


def finish(loopback: Loopback, run: str) -> str:
    loopback.follow(run)
    return loopback.status(run)


def wait_until(is_so: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def models(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("models/**/*.safetensors"))}


def clusters(folder: Path, label: str) -> dict[str, str]:
    with open(folder / "clients.csv", newline="") as file:
        return {row["client"]: row["cluster"] for row in csv.DictReader(file) if row["label"] == label}


def repeat(folder: Path, label: str) -> dict[str, Any]:
    methods = json.loads((folder / "summary.json").read_text())["methods"]
    return next(method["repeats"][0] for method in methods if method["label"] == label)
