"""A SuperLink and nodes on this machine, as they would be on several: TLS, and nobody joins without a known key."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from keys import make_certificates, make_supernode_key

HOST = "127.0.0.1"
CONNECTION = "loopback"


class Loopback:
    """Everything lies in `folder`, and with `database` also what the SuperLink knows, which then outlasts it.

    What was started is stopped when the `with` ends, whatever happens in it.
    """

    def __init__(self, folder: Path, *, database: bool = False) -> None:
        self.folder = folder
        self.database = database
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Loopback:
        make_certificates(self.folder / "certificates", [HOST, "localhost"])
        certificates = self.folder / "certificates"
        home = self.home("flwr")
        home.joinpath("config.toml").write_text(
            f"[superlink.{CONNECTION}]\n"
            f'address = "{HOST}:{self.port}"\n'
            f'root-certificates = "{certificates / "ca.pem"}"\n'
        )
        try:
            self.start_superlink()
        except BaseException:
            self.stop_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_all()

    def start_superlink(self) -> None:
        certificates = self.folder / "certificates"
        self.start(
            "superlink",
            ["flower-superlink", "--host", HOST, "--port", str(self.port)]
            + ["--ssl-certfile", str(certificates / "superlink.pem")]
            + ["--ssl-keyfile", str(certificates / "superlink.key")]
            + ["--ssl-ca-certfile", str(certificates / "ca.pem")]
            + ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
            + (["--database", str(self.folder / "superlink.db")] if self.database else []),
        )
        self.wait_for_port("superlink", self.port)

    def add_key(self, name: str, *, register: bool = True) -> None:
        """Makes a key, of which the SuperLink is told unless `register` is false."""
        keys = self.folder / "keys"
        make_supernode_key(keys, name)
        if register:
            self.flwr("supernode", "register", str(keys / f"{name}.pub"), CONNECTION, "--name", name)

    def start_node(self, name: str, node: Path) -> None:
        """Starts a node of Kinfolk's own, whose key was made before, with the machine's file."""
        self.start(
            name,
            [os.environ.get("KINFOLK", "kinfolk"), "node", "--superlink", f"{HOST}:{self.port}"]
            + ["--root-certificates", str(self.folder / "certificates" / "ca.pem")]
            + ["--key", str(self.folder / "keys" / name), str(node)],
        )

    def start_supernode(self, name: str, node_config: str) -> None:
        """Starts a SuperNode of Flower's, whose key was made before."""
        self.start(
            name,
            ["flower-supernode", "--superlink", f"{HOST}:{self.port}", "--port", str(free_port())]
            + ["--root-certificates", str(self.folder / "certificates" / "ca.pem")]
            + ["--auth-supernode-private-key", str(self.folder / "keys" / name)]
            + ["--node-config", node_config],
        )

    def start_run(self, app: Path, **run_config: str | int | float) -> str:
        """Submits an app and gives the number of its run."""
        settings = " ".join(f"{key}={json.dumps(value)}" for key, value in run_config.items())
        answer = self.flwr("run", str(app), CONNECTION, "--run-config", settings, "--format", "json")
        return str(json.loads(answer)["run-id"])

    def follow(self, run: str) -> None:
        """Shows what a run says, until it ends."""
        subprocess.run(
            ["flwr", "log", run, CONNECTION, "--stream"], env=self.environment("flwr"), stdin=subprocess.DEVNULL, check=True
        )

    def status(self, run: str) -> str:
        """`running`, `finished:completed`, `finished:failed` …"""
        runs = json.loads(self.flwr("ls", CONNECTION, "--run-id", run, "--format", "json"))["runs"]
        return str(runs[0]["status"])

    def log(self, name: str) -> str:
        """What a process has written so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """Ends a process without a word of farewell, as a power cut would."""
        end(self.processes.pop(name), signal.SIGKILL)

    def stop(self, name: str) -> None:
        """Ends a process in order: a SuperNode says goodbye."""
        end(self.processes.pop(name), signal.SIGTERM)

    def stop_all(self) -> None:
        """Ends all processes, the SuperLink last."""
        for name in reversed(list(self.processes)):
            self.stop(name)

    def flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            ["flwr", *arguments], env=self.environment("flwr"), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"flwr {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, name: str, command: list[str]) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own: Ctrl-C reaches this script alone, and its end reaches what they started in turn.
                start_new_session=True,
            )

    def wait_for_port(self, name: str, port: int, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                socket.create_connection((HOST, port), timeout=1.0).close()
                return
            except OSError:
                if self.processes[name].poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{name} did not start:\n{self.log(name)}") from None
                time.sleep(0.1)

    def environment(self, name: str) -> dict[str, str]:
        return os.environ | {
            # flower-superexec and the apps are started by name.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(self.home(name)),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            # How often Flower looks for work: a second, unless told.
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        }

    def home(self, name: str) -> Path:
        """Each process has a home of its own, as on a machine of its own."""
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        return home


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def end(process: subprocess.Popen[bytes], kind: signal.Signals) -> None:
    """Ends a process, and whatever is left then of what it started."""
    for each in (kind, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, each)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10.0)
