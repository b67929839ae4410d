"""Starts a SuperLink and three SuperNodes on this machine, runs the experiment on them, and stops them again.

The run's folder is `runs/…` where this is called from.
"""

from __future__ import annotations

import csv
import random
import signal
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from loopback import Loopback

APP = Path(__file__).resolve().parent
MACHINES = ("north", "south", "west")
SHOPS = 12
# How much somebody spends for every year of age and for every visit, in the two kinds of shops.
KINDS = ((2.0, -1.0), (-1.0, 3.0))


def write_table(path: Path, shops: Iterable[int]) -> None:
    """A table of these shops, which are by turns of one kind and of the other."""
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["shop", "age", "visits", "spent"])
        for shop in shops:
            draw = random.Random(shop)
            by_age, by_visits = KINDS[shop % 2]
            for _ in range(60):
                age, visits = draw.gauss(0.0, 1.0), draw.gauss(0.0, 1.0)
                spent = by_age * age + by_visits * visits + draw.gauss(0.0, 0.3)
                table.writerow([f"shop-{shop:02}", f"{age:.4f}", f"{visits:.4f}", f"{spent:.4f}"])


def start_machines(loopback: Loopback) -> None:
    """Three SuperNodes, each with a table of four of the twelve shops and with a file that says what may be read of it."""
    for number, name in enumerate(MACHINES):
        place = loopback.folder / name
        place.mkdir(exist_ok=True)
        table, node = place / "shops.csv", place / "node.toml"
        write_table(table, range(number, SHOPS, len(MACHINES)))
        text = (APP / "node.toml").read_text()
        node.write_text(text.replace('"north"', f'"{name}"').replace('"/data/shops.csv"', f'"{table}"'))
        loopback.add_supernode(name, f'node="{node}"')


def stop(*_: object) -> None:
    """Has everything tidied up, and lets nothing keep it from that."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit("stopped")


def main() -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Loopback(Path(folder)) as loopback:
        start_machines(loopback)
        run = loopback.start_run(APP)
        loopback.follow(run)
        status = loopback.status(run)
    if status != "finished:completed":
        sys.exit(f"the run is {status}")


if __name__ == "__main__":
    main()
