"""`kinfolk.run`: what it takes, what it refuses, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kinfolk
from test_same_bits import assert_same


def refused(*arguments: Any, **keywords: Any) -> kinfolk.Error:
    with pytest.raises(kinfolk.Error) as caught:
        kinfolk.run(*arguments, **keywords)
    assert not Path("runs").exists()
    return caught.value


def setting(run: kinfolk.Run, label: str, name: str) -> Any:
    return next(method["settings"][name] for method in run.summary["methods"] if method["label"] == label)


def test_overrides_in_every_form(tiny: dict[str, Any]) -> None:
    run = kinfolk.run(
        tiny,
        data={"clients": np.int64(8)},
        method={"ifca": {"rounds": 3, "step": np.float32(0.5)}},
        seed=7,
        repeat=2,
        name="changed",
        **{"method.fedavg.step": 0.25},
    )
    assert run.folder.parent == Path("runs").absolute()
    assert run.folder.name.startswith("changed-")
    assert run.summary["data"]["clients"] == 8
    assert [repeat["seed"] for repeat in run.summary["methods"][0]["repeats"]] == [7, 8]
    assert (setting(run, "ifca", "rounds"), setting(run, "ifca", "step")) == (3, 0.5)
    assert setting(run, "fedavg", "step") == 0.25


def test_a_folder_in_use_is_refused_and_named(tiny: dict[str, Any], tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / ".kinfolk-lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(kinfolk.Error, match="in use by process 4711"):
            kinfolk.run(tiny, out=tmp_path)
    assert kinfolk.run(tiny, out=tmp_path).folder == tmp_path


def test_runs_at_once_get_folders_of_their_own(tiny: dict[str, Any]) -> None:
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(kinfolk.run(tiny).folder)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(folders)) == 4 and all((folder / "summary.json").exists() for folder in folders)


def test_one_method_needs_no_list(tiny: dict[str, Any]) -> None:
    tiny["method"] = tiny["method"][1]
    assert [method["label"] for method in kinfolk.run(tiny).summary["methods"]] == ["fedavg"]


def test_presets_have_names() -> None:
    assert kinfolk.run("mixtures").summary["name"] == "mixtures"


def test_all_faults_at_once(tiny: dict[str, Any]) -> None:
    error = refused(tiny, data={"clients": 0, "sampels": 3}, method={"ifac": {"step": 1}}, evaluate=1, seed=-1)
    assert error.kind == "settings"
    assert str(error) == (
        "5 faults\n"
        "- method.ifac.step: there is no method ifac\n  hint: methods here: ifca, fedavg, local\n"
        "- evaluate: unknown setting\n"
        "  hint: want data.KEY, model.KEY, faults.KEY, privacy.KEY, method.LABEL.KEY, or a key at the top of the file\n"
        "- seed: got -1, want a whole number of at least 0\n"
        "- data.clients: got 0, want a whole number from 1 to 10000000\n"
        "- data: unknown key `sampels`\n  hint: did you mean `samples`?"
    )


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, "data.clients: got None, want a value; leave it out for its default"),
        ({1, 2}, "data.clients: got <class 'set'>, want a text, a number, a bool, a list or a dict"),
        (2**70, f"data.clients: got {2**70}, want a number of at most 64 bits"),
        (True, "data.clients: got true, want a whole number"),
        ("many", 'data.clients: got "many", want a whole number'),
        ({"a": 1}, "data.clients: got { a = 1 }, want a whole number"),
        (np.array([1, 2]), "data.clients: got [1, 2], want a whole number"),
        ((1, 2.5), "data.clients: got [1, 2.5], want a whole number"),
        (Path("some/where"), 'data.clients: got "some/where", want a whole number'),
    ],
)
def test_values_that_are_none(tiny: dict[str, Any], value: object, found: str) -> None:
    assert str(refused(tiny, data={"clients": value})).startswith(found)
    tiny["data"]["clients"] = value
    assert str(refused(tiny)).startswith(found)


def test_experiments_that_are_none(tiny: dict[str, Any]) -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "deep, want fewer" in str(refused(tiny, data={"clients": endless}))
    assert "got the key 1, want a text" in str(refused({1: 2}))
    assert "no [[method]]" in str(refused({}))
    assert refused("quikstart").kind == "io"
    Path("broken.toml").write_text("name = ")
    assert "broken.toml: not a TOML file" in str(refused("broken.toml"))
    with pytest.raises(TypeError):
        kinfolk.run(5)  # type: ignore[arg-type]


def test_options_are_spelt_as_keywords(tiny: dict[str, Any]) -> None:
    assert str(refused(tiny, threads=0)) == "threads: got 0, want a whole number from 1 to 1024"
    assert str(refused(tiny, resume=True)).startswith("resume: want also out")
    kinfolk.run(tiny, out="taken")
    assert str(refused(tiny, out="taken")).endswith("hint: choose another folder with out")
    hint = str(refused(tiny, out="missing", resume=True)).splitlines()[-1]
    assert hint == "  hint: run without resume=True first, or name the right folder with out"


def test_a_method_that_diverges_is_part_of_the_run(tiny: dict[str, Any]) -> None:
    run = kinfolk.run(tiny, method={"fedavg": {"step": 1e6, "rounds": 200}})
    assert [method["status"] for method in run.summary["methods"]] == ["done", "diverged", "done"]
    assert "fedavg: warning: diverged" in repr(run)


def test_a_finished_run_is_resumed_to_itself(tiny: dict[str, Any]) -> None:
    first = kinfolk.run(tiny, out="run")
    assert kinfolk.run(tiny, out="run", resume=True).summary == first.summary
    with pytest.raises(kinfolk.Error, match="settings have changed"):
        kinfolk.run(tiny, out="run", resume=True, seed=4)


def test_progress_is_told(tiny: dict[str, Any]) -> None:
    events: list[dict[str, Any]] = []
    caller = threading.get_ident()

    def hear(event: dict[str, Any]) -> None:
        assert threading.get_ident() == caller
        events.append(event)

    run = kinfolk.run(tiny, progress=hear)
    kinds = [event["event"] for event in events]
    assert kinds[0] == "doing" and kinds[-1] == "finished"
    assert [event["label"] for event in events if event["event"] == "method"] == ["ifca", "fedavg", "local"]
    told = [event["loss"] for event in events if event["event"] == "round"]
    assert np.array_equal(np.array(told, dtype=float), run.rounds["loss"], equal_nan=True)


def test_a_listener_may_stop_a_run(tiny: dict[str, Any]) -> None:
    def object_to(event: dict[str, Any]) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        kinfolk.run(tiny, out="run", progress=object_to, method={"ifca": {"rounds": 100_000}})
    assert Path("run/checkpoint").is_dir() and not Path("run/summary.json").exists()


def test_runs_on_any_thread(tiny: dict[str, Any]) -> None:
    runs: list[kinfolk.Run] = []
    thread = threading.Thread(target=lambda: runs.append(kinfolk.run(tiny, out="run")))
    thread.start()
    thread.join(60)
    assert runs[0].summary["name"] == "tiny"


INTERRUPTED = """
import json, sys, kinfolk

def hear(event):
    if event["event"] == "round" and event["round"] == 3:
        print("running", flush=True)

kinfolk.run(json.loads(sys.argv[1]), out="stopped", progress=hear)
"""


def test_an_interrupted_run_goes_on_where_it_was(folder: Path, tiny: dict[str, Any]) -> None:
    tiny["evaluate_every"] = 1_000
    tiny["method"][0]["rounds"] = 4_000
    arguments = [sys.executable, "-c", INTERRUPTED, json.dumps(tiny)]
    # A checkpoint after every round makes the rounds slow enough to be interrupted.
    environment = os.environ | {"KINFOLK_CHECKPOINT_SECONDS": "0"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(arguments, text=True, env=environment, **pipes) as child:
        assert child.stdout is not None and child.stdout.readline() == "running\n"
        child.send_signal(signal.SIGINT)
        _, message = child.communicate(timeout=20)
    assert 'KeyboardInterrupt: stopped; go on with out="stopped", resume=True' in message
    assert child.returncode in (-signal.SIGINT, 130)
    assert list(Path("stopped/checkpoint").glob("ifca-0.current"))
    with pytest.raises(kinfolk.Error, match="the run is not finished: go on with out and resume=True"):
        kinfolk.load("stopped")
    resumed = kinfolk.run(tiny, out="stopped", resume=True)
    assert_same(resumed.folder, kinfolk.run(tiny, out="whole").folder)


def test_a_terminal_shows_a_bar_and_a_pipe_does_not(tiny: dict[str, Any]) -> None:
    script = "import json, sys, kinfolk; kinfolk.run(json.loads(sys.argv[1]), out=sys.argv[2])"
    arguments = [sys.executable, "-c", script, json.dumps(tiny)]
    piped = subprocess.run([*arguments, "piped"], capture_output=True, timeout=30)
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, b"", b"")
    ours, theirs = os.openpty()
    with subprocess.Popen([*arguments, "shown"], stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        shown = b""
        # A terminal whose other side is gone says so with an error.
        while part := read_some(ours):
            shown += part
    os.close(ours)
    assert child.returncode == 0, shown
    assert "ifca (seed 0) ░" in shown.decode() and "0/12 rounds" in shown.decode()
    assert shown.endswith(b"\r\x1b[K")


def read_some(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""
