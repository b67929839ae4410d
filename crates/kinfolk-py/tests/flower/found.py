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


def without_seconds(folder: Path) -> dict[str, object]:
    """All files of a run, without the seconds it took: those of summary.json and rounds.csv, and of the record inside the page."""
    found: dict[str, object] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if name == "summary.json":
            found[name] = [line for line in path.read_text().splitlines() if not line.lstrip().startswith('"seconds":')]
        elif name == "rounds.csv":
            with open(path, newline="") as file:
                found[name] = [{key: row[key] for key in row if key != "seconds"} for row in csv.DictReader(file)]
        elif name == "report.html":
            before, rest = path.read_text().split('<script type="application/json" id="record">')
            record, after = rest.split("</script>", 1)
            found[name] = (before, forget_seconds(json.loads(record)), after)
        else:
            found[name] = path.read_bytes()
    return found


def forget_seconds(value: Any) -> Any:
    if isinstance(value, list):
        return [forget_seconds(each) for each in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("columns"), list) and isinstance(value.get("rows"), list):
        timed = [place for place, column in enumerate(value["columns"]) if column.get("title") == "seconds"]
        value["rows"] = [[cell for place, cell in enumerate(row) if place not in timed] for row in value["rows"]]
    return {key: forget_seconds(each) for key, each in value.items() if key != "seconds"}
