"""Starts a SuperLink and three nodes on this machine, runs the experiment on them, and stops them again.

The nodes are `kinfolk node`, where that program is installed, else Flower's SuperNodes, which take their time. The run's folder is
`runs/…` where this is called from.
"""

from __future__ import annotations

import csv
import os
import random
import shutil
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


def write_node(place: Path, number: int, name: str) -> Path:
    """A machine's table of four of the twelve shops, and its file that says what may be read of it."""
    place.mkdir(exist_ok=True)
    table, node = place / "shops.csv", place / "node.toml"
    write_table(table, range(number, SHOPS, len(MACHINES)))
    text = (APP / "node.toml").read_text()
    node.write_text(text.replace('"north"', f'"{name}"').replace('"/data/shops.csv"', f'"{table}"'))
    return node


def start_machines(loopback: Loopback, *, stock: bool) -> None:
    """Three machines: with Flower's SuperNodes if `stock`, else with nodes of Kinfolk's own."""
    for number, name in enumerate(MACHINES):
        node = write_node(loopback.folder / name, number, name)
        loopback.add_key(name)
        if stock:
            loopback.start_supernode(name, f'node="{node}"')
        else:
            loopback.start_node(name, node)


def stop(*_: object) -> None:
    """Has everything tidied up, and lets nothing keep it from that."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit("stopped")


def main() -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Loopback(Path(folder)) as loopback:
        stock = shutil.which(os.environ.get("KINFOLK", "kinfolk")) is None
        print("with Flower's SuperNodes" if stock else "with nodes of Kinfolk's own", flush=True)
        start_machines(loopback, stock=stock)
        run = loopback.start_run(APP)
        loopback.follow(run)
        status = loopback.status(run)
    if status != "finished:completed":
        sys.exit(f"the run is {status}")


if __name__ == "__main__":
    main()
