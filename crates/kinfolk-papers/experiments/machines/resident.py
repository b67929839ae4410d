"""A resident node under load: `resident.py soak ROUNDS` has a tiny model go round and round, `resident.py large WIDTH` a network with two
hidden layers of that width once. Says the times of questions, and the memory of node, server's app and SuperLink on the way.

Wants the package with Flower, and the program: KINFOLK=target/release/kinfolk python experiments/machines/resident.py soak 5000
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples" / "flower"))

from loopback import Loopback  # noqa: E402

PROGRAM = os.environ.get("KINFOLK", "kinfolk")
EXPERIMENT = """
name = "resident"
evaluate_every = 1000000
save_models = "none"
[data]
source = "digits"
clients = {clients}
samples = {samples}
test_samples = 10
true_clusters = 1
[model]
{model}
[[method]]
name = "fedavg"
rounds = {rounds}
step = 0.1
"""

NODE = """
[node]
name = "node"
partition = [0, 1]
minimum_rows = 1
[node.limits]
message_bytes = 4294967296
numbers = 2147483648
"""


def memory(process: int, peak: bool = False) -> float:
    """Megabytes of a process, now or at most so far."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"^VmHWM:\s+(\d+)" if peak else r"^VmRSS:\s+(\d+)", status, re.M)
    return int(found[1]) / 1024 if found else 0.0


def server_app(port: int) -> int | None:
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"flwr-serverapp" in (line := place.read_bytes()) and f":{port}".encode() in line:
                return int(place.parent.name)
        except OSError:
            continue
    return None


def run(experiment: str, every: float, timeout: int) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Loopback(Path(folder)) as loopback:
        loopback.add_key("node")
        ca, key = Path(folder) / "certificates" / "ca.pem", Path(folder) / "keys" / "node"
        limits = Path(folder) / "node.toml"
        limits.write_text(NODE)
        loopback.start(
            "node",
            [PROGRAM, "node", "--superlink", f"127.0.0.1:{loopback.port}", "--root-certificates", str(ca)]
            + ["--key", str(key), str(limits)],
        )
        file = Path(folder) / "experiment.toml"
        file.write_text(experiment)
        environment = loopback.environment("flwr") | {"KINFOLK_PYTHON": sys.executable}
        began = time.monotonic()
        line = [PROGRAM, "run", "--on", "flower", "--superlink", "loopback", "--timeout", str(timeout), str(file)]
        running = subprocess.Popen([*line, "--out", str(Path(folder) / "run")], env=environment, stdin=subprocess.DEVNULL)
        node, superlink, app, looked = loopback.processes["node"].pid, loopback.processes["superlink"].pid, None, -1e9
        peaks = {"node": 0.0, "app": 0.0, "SuperLink": 0.0}
        while running.poll() is None:
            app = app or server_app(loopback.port)
            for name, process in (("node", node), ("app", app or 0), ("SuperLink", superlink)):
                # A process that has ended has none.
                peaks[name] = max(peaks[name], memory(process, peak=True))
            if time.monotonic() - looked >= every:
                looked = time.monotonic()
                answered = loopback.log("node").count(" of work)")
                now = {"node": memory(node), "app": memory(app or 0), "SuperLink": memory(superlink)}
                told = ", ".join(f"{name} {megabytes:.1f}" for name, megabytes in now.items())
                print(f"{looked - began:7.1f} s, {answered:6} answers: {told} MB, load {os.getloadavg()[0]:.1f}", flush=True)
            time.sleep(0.2)
        seconds = time.monotonic() - began
        log = loopback.log("node")
        milliseconds = [int(found) for found in re.findall(r"(\d+) ms \(", log)]
        print(f"ended with {running.returncode} after {seconds:.1f} s, {len(milliseconds)} answers")
        if len(milliseconds) < 20:
            print(log)
        else:
            print(f"median of an answer at the node: {median(milliseconds)} ms, the longest {max(milliseconds)} ms")
        print("peaks: " + ", ".join(f"{name} {megabytes:.0f} MB" for name, megabytes in peaks.items()))


def main() -> None:
    kind, size = sys.argv[1], int(sys.argv[2])
    if kind == "soak":
        model = 'kind = "softmax"'
        run(EXPERIMENT.format(clients=4, samples=20, model=model, rounds=size), every=15.0, timeout=60)
    else:
        model = f'kind = "mlp"\nhidden = [{size}, {size}]'
        run(EXPERIMENT.format(clients=1, samples=10, model=model, rounds=1), every=5.0, timeout=1800)


if __name__ == "__main__":
    main()
