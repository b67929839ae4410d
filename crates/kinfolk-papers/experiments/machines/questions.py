"""What a question takes with three resident nodes and with three of Flower's SuperNodes, one after the other over one SuperLink, with TLS and
a key for every machine: IFCA with four models on the quickstart's digits.

Wants the package with Flower, and the program: KINFOLK=target/release/kinfolk python experiments/machines/questions.py [resident]
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples" / "flower"))

from loopback import CONNECTION, HOST, Loopback  # noqa: E402

PROGRAM = os.environ.get("KINFOLK", "kinfolk")
MACHINES = ("north", "south", "west")
EXPERIMENT = """
name = "questions"
[data]
source = "digits"
clients = 40
samples = 30
test_samples = 30
[model]
kind = "mlp"
hidden = [32]
[[method]]
name = "ifca"
clusters = 4
rounds = {rounds}
local_steps = 10
step = 0.3
"""


def start(loopback: Loopback, number: int, name: str, *, stock: bool) -> None:
    place = f"{'stock' if stock else 'resident'}-{name}"
    loopback.add_key(place)
    if stock:
        loopback.start_supernode(place, f"partition-id={number} num-partitions={len(MACHINES)}")
        return
    ca, key = loopback.folder / "certificates" / "ca.pem", loopback.folder / "keys" / place
    loopback.start(
        place,
        [PROGRAM, "node", "--superlink", f"{HOST}:{loopback.port}", "--root-certificates", str(ca), "--key", str(key)]
        + ["--partition", f"{number}/{len(MACHINES)}", "--state", str(loopback.folder / f"{place}-state")],
    )


def measure(loopback: Loopback, rounds: int, *, stock: bool) -> None:
    for number, name in enumerate(MACHINES):
        start(loopback, number, name, stock=stock)
    kind = "SuperNodes" if stock else "nodes"
    file, out = loopback.folder / f"{kind}.toml", loopback.folder / kind
    file.write_text(EXPERIMENT.format(rounds=rounds))
    line = [PROGRAM, "run", "--on", "flower", "--superlink", CONNECTION, "--machines", "3", str(file), "--out", str(out)]
    environment = loopback.environment("flwr") | {"KINFOLK_PYTHON": sys.executable}
    began = time.monotonic()
    subprocess.run(line, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    whole = time.monotonic() - began
    # `seconds` counts from the method's beginning; rows of the phase `evaluate` are other questions in between.
    with open(out / "rounds.csv", newline="") as opened:
        at = [float(row["seconds"]) for row in csv.DictReader(opened) if row["phase"] == "train"]
    took = [later - earlier for earlier, later in zip(at, at[1:])]
    # The memory of those of ours.
    own = [loopback.processes[name].pid for name in loopback.processes if name.startswith("resident-")]
    peaks = [int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024 for pid in own]
    told = f", memory of a node at most {max(peaks):.0f} MB" if peaks else ""
    print(
        f"{kind}: {rounds} rounds in {at[-1]:.1f} s, {whole:.1f} s from the command to its end; a round {median(took):.2f} s (median), "
        f"{quantiles(took, n=20, method='inclusive')[-1]:.2f} s (95th percentile), {max(took):.2f} s at most; "
        f"load {os.getloadavg()[0]:.1f}{told}",
        flush=True,
    )
    for name in [name for name in loopback.processes if name != "superlink"]:
        loopback.stop(name)


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Loopback(Path(folder)) as loopback:
        measure(loopback, 60, stock=False)
        if sys.argv[1:] != ["resident"]:
            measure(loopback, 12, stock=True)


if __name__ == "__main__":
    main()
