"""What happens to runs on real machines, with TLS and a key for every node: processes that are killed, networks, disks and clocks.

A process that was killed, with SIGKILL, and went on leaves every file as that of a run that was left alone. A moment each here, all in
one run; `make kills-flower KILLS=10` takes more.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PROGRAM
from found import repeat, wait_until
from loopback import HOST, Loopback
from machines import Machines, differences
from proxy import Proxy
from run import MACHINES

KILLS = int(os.environ.get("KINFOLK_FLOWER_KILLS", "1"))
SEED = int(os.environ.get("KINFOLK_FLOWER_KILLS_SEED", "0"))
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three nodes of their own, and a SuperLink with its database on disk."""
    # The server's app gets it from the SuperLink.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KINFOLK_CHECKPOINT_SECONDS", "0")
        with Loopback(tmp_path_factory.mktemp("killed"), database=True) as loopback:
            yield Machines(loopback, PROGRAM)


@pytest.fixture(scope="module")
def alone(machines: Machines, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int]:
    """What a run leaves that nobody disturbs, and how many questions it asks."""
    out = tmp_path_factory.mktemp("alone") / "run"
    before = machines.answered()
    machines.finish(out)
    left = machines.results(out)
    assert {"clients.csv", "models/ifca/0/cluster-0.safetensors", "north/client-shop-00.safetensors"} <= left.keys()
    return left, machines.answered() - before


def moments(who: str, count: int, questions: int) -> Iterator[tuple[int, float]]:
    """After how many questions to kill, and how many seconds later."""
    draw = random.Random(f"{who} {SEED}")
    for number in range(count):
        yield int((number + draw.random()) * questions / count), draw.uniform(0.0, 0.3)


def started_by(process: int) -> dict[int, str]:
    """The processes that a process has started, and those that they have, with their command lines."""
    parents, lines = {}, {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                lines[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
    found, new = {process}, {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return {child: lines[child] for child in found - {process}}


def server_apps(loopback: Loopback) -> list[int]:
    children = started_by(loopback.processes["superlink"].pid)
    return [process for process, line in children.items() if "flwr-serverapp" in line]


def disturb(machines: Machines, who: str, run: subprocess.Popen[bytes], out: Path) -> subprocess.Popen[bytes] | None:
    """Has something happen, and the run go on: the process that follows it then, if it has not ended."""
    loopback = machines.loopback
    if who in machines.files:
        said = loopback.log(who)
        loopback.kill(who)
        loopback.start_node(who, machines.files[who])
        assert "refused: " not in said
        return run
    if who == "disk":
        ballast = fill(out.parent)
        assert run.wait() != 0
        assert "No space left on device" in machines.log.read_text()
        ballast.unlink()
    elif who == "SuperLink":
        loopback.kill("superlink")
        wait_until(lambda: run.poll() is not None)
        loopback.start_superlink()
    else:
        for process in server_apps(loopback):
            os.kill(process, signal.SIGKILL)
        if who == "server app, unnoticed":
            # Flower notices after a minute.
            wait_until(lambda: run.poll() is not None)
        run.send_signal(signal.SIGINT)
        run.wait()
    if (out / "summary.json").exists():
        return None
    assert run.returncode != 0
    assert "Traceback" not in (said := machines.log.read_text())
    assert "--resume" in said or who == "disk"
    # It may not have begun.
    return machines.start(out, resume=(out / "experiment.toml").exists())


def test_one_run_through_it_all(
    machines: Machines, alone: tuple[dict[str, Any], int], small_disk: Path | None, tmp_path: Path
) -> None:
    whole, _ = alone
    out = (small_disk or tmp_path) / "run"
    run: subprocess.Popen[bytes] | None = machines.start(out)
    for who in (*(["disk"] if small_disk else []), "server app", "SuperLink", "south"):
        before = machines.answered()
        wait_until(lambda before=before: machines.answered() >= before + 4)
        assert run is not None, "there are more questions"
        run = disturb(machines, who, run, out)
    assert run is not None and run.wait() == 0, machines.log.read_text()
    assert "refused: " not in machines.logs()
    assert differences(whole, machines.results(out)) == set()


def loopback_logs(machines: Machines) -> str:
    return "".join(machines.loopback.log(name) for name in machines.files)


@pytest.mark.skipif(KILLS == 1, reason="takes long: make kills-flower")
@pytest.mark.parametrize("who", ["server app", "SuperLink", "node"])
def test_a_process_that_is_killed_at_any_moment_costs_nothing_but_time(
    who: str, machines: Machines, alone: tuple[dict[str, Any], int], tmp_path: Path
) -> None:
    whole, questions = alone
    for number, (question, seconds) in enumerate(moments(who, KILLS, questions)):
        out = tmp_path / f"{who}-{number}"
        began, before = time.monotonic(), machines.answered()
        run = machines.start(out)
        wait_until(lambda: server_apps(machines.loopback) != [] and machines.answered() >= before + question)
        time.sleep(seconds)
        killed = {"node": MACHINES[1 + number % 2], "server app": "server app, unnoticed" if number == 0 else who}
        goes_on = disturb(machines, killed.get(who, who), run, out)
        assert goes_on is None or goes_on.wait() == 0, machines.log.read_text()
        print(f"{who}: killed {seconds:.2f} s after question {question} of {questions}, {time.monotonic() - began:.1f} s in all")
        assert differences(whole, machines.results(out)) == set(), f"{question} of {questions}"


def stand_still(processes: list[int], seconds: float) -> None:
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    time.sleep(seconds)
    for process in processes:
        os.kill(process, signal.SIGCONT)


def test_processes_that_stand_still_for_a_while_cost_nothing_but_time(
    machines: Machines, alone: tuple[dict[str, Any], int], tmp_path: Path
) -> None:
    """As on a machine that is suspended, or has no memory to spare."""
    whole, _ = alone
    loopback, out = machines.loopback, tmp_path / "still"
    run = machines.start(out)
    for who in ("north", "superlink", "server app"):
        before = machines.answered()
        wait_until(lambda before=before: machines.answered() >= before + 3)
        stand_still(server_apps(loopback) if who == "server app" else [loopback.processes[who].pid], 3.0)
    assert run.wait() == 0, machines.log.read_text()
    assert differences(whole, machines.results(out)) == set()


@pytest.mark.skipif(KILLS == 1, reason="takes a minute: make kills-flower")
def test_a_node_that_stands_still_until_it_is_given_up_ends_no_run(machines: Machines, tmp_path: Path) -> None:
    loopback, out = machines.loopback, tmp_path / "long"
    before = machines.answered()
    run = machines.start(out)
    wait_until(lambda: machines.answered() >= before + 4)
    # Flower waits for two signs of life, of which a node gives one in ten seconds; the run for a minute.
    stand_still([loopback.processes["south"].pid], 75.0)
    assert run.wait() == 0, machines.log.read_text()
    notes = [note for label in ("ifca", "local") for note in repeat(out, label).get("notes", [])]
    assert any(note.startswith("south: ") for note in notes), "it was missing, and is named"
    wait_until(lambda: "connected to SuperLink" in loopback.log("south"))


def start_node(machines: Machines, name: str, port: int, *options: str) -> None:
    loopback = machines.loopback
    loopback.start(
        name,
        [str(PROGRAM), "node", "--superlink", f"{HOST}:{port}"]
        + ["--root-certificates", str(loopback.folder / "certificates" / "ca.pem")]
        + ["--key", str(loopback.folder / "keys" / name), *options, str(machines.files[name])],
    )


@pytest.fixture
def proxy(machines: Machines) -> Iterator[Proxy]:
    """Between the SuperLink and one of the nodes."""
    proxy = Proxy(machines.loopback.port)
    machines.loopback.stop("south")
    start_node(machines, "south", proxy.port)
    yield proxy
    proxy.close()
    machines.loopback.stop("south")
    machines.loopback.start_node("south", machines.files["south"])


def test_connections_that_are_slow_or_cut_change_nothing(
    machines: Machines, alone: tuple[dict[str, Any], int], proxy: Proxy, tmp_path: Path
) -> None:
    whole, _ = alone
    out, draw = tmp_path / "cut", random.Random(0)
    run = machines.start(out)
    cuts = 0
    while run.poll() is None:
        time.sleep(draw.uniform(0.3, 1.5))
        proxy.delay = draw.choice([0.0, 0.01, 0.05])
        proxy.cut()
        cuts += 1
    assert run.returncode == 0, machines.log.read_text()
    assert cuts > 3 and proxy.connections > cuts, "connections were cut, and others made"
    assert differences(whole, machines.results(out)) == set(), machines.log.read_text()


@pytest.mark.skipif(KILLS == 1, reason="takes a minute: make kills-flower")
def test_a_connection_that_is_half_open_ends_no_run(
    machines: Machines, alone: tuple[dict[str, Any], int], proxy: Proxy, tmp_path: Path
) -> None:
    (whole, _), out = alone, tmp_path / "half"
    before = machines.answered()
    run = machines.start(out)
    wait_until(lambda: machines.answered() >= before + 8)
    proxy.half_open()
    length = len(machines.loopback.log("south"))
    assert run.wait() == 0, machines.log.read_text()
    for label in ("ifca", "local"):
        assert repeat(out, label)["status"] == "done"
    # It may be missing for a while, and is named then.
    notes = [note for label in ("ifca", "local") for note in repeat(out, label).get("notes", [])]
    is_named = any(note.startswith("south: ") for note in notes)
    assert is_named or differences(whole, machines.results(out)) == set()

    def is_back() -> bool:
        since = machines.loopback.log("south")[length:]
        return "connected to SuperLink" in since or "is there again" in since

    wait_until(is_back)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of a few hundred kilobytes, where one may make one."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True)
    if mounted.returncode != 0:
        yield None
        return
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path) -> Path:
    """Leaves no room; gives the file that takes it."""
    ballast = place / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            pass
    return ballast


def test_a_full_disk_at_a_node_is_said_and_costs_nothing_that_was_kept(
    machines: Machines, small_disk: Path | None, tmp_path: Path
) -> None:
    if small_disk is None:
        pytest.skip("only root may mount")
    loopback, out = machines.loopback, tmp_path / "full"
    loopback.stop("west")
    start_node(machines, "west", loopback.port, "--state", str(small_disk))
    try:
        run = machines.start(out)
        wait_until(lambda: loopback.log("west").count("train, local") >= 2)
        ballast = fill(small_disk)
        wait_until(lambda: "refused: " in loopback.log("west"))
        ballast.unlink()
        assert run.wait() == 0, machines.log.read_text()
        assert "No space left on device" in loopback.log("west")
    finally:
        loopback.stop("west")
        loopback.start_node("west", machines.files["west"])
    local = repeat(out, "local")
    assert (local["status"], local["rounds"]) == ("done", 6)
    assert any(note.startswith("west: ") for note in local["notes"]), "the server is told that it was missing"
    kept = f"personal models of 4 clients are kept on their machine, {MACHINES[2]}"
    assert any(note.startswith(kept) for note in local["notes"]), local["notes"]


@pytest.mark.skipif(not FAKETIME.exists(), reason="wants libfaketime")
@pytest.mark.parametrize(("offset", "said"), [("+600s", "ahead of"), ("-600s", "behind")])
def test_a_clock_that_is_ten_minutes_off_is_said(machines: Machines, offset: str, said: str, tmp_path: Path) -> None:
    loopback = machines.loopback
    name = f"clock{offset[0]}"
    loopback.add_key(name)
    shutil.copytree(machines.files["north"].parent, tmp_path / "north")
    done = subprocess.run(
        [PROGRAM, "node", "--superlink", f"{HOST}:{loopback.port}", "--key", loopback.folder / "keys" / name]
        + ["--root-certificates", loopback.folder / "certificates" / "ca.pem", "--state", tmp_path / "state"]
        + [tmp_path / "north" / "node.toml"],
        env=os.environ | {"LD_PRELOAD": str(FAKETIME), "FAKETIME": offset},
        capture_output=True,
        text=True,
        timeout=60.0,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert f"seconds {said} the SuperLink's" in done.stderr
    assert "Flower accepts 5 seconds ahead and 305 seconds behind" in done.stderr
