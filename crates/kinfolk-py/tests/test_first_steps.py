"""What a fresh machine meets first: `make`, what it installs, and the package that is built there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

RUST = next(line.split('"')[1] for line in (ROOT / "Cargo.toml").read_text().splitlines() if "rust-version" in line)


class Machine:
    """A machine with nothing but the commands it is given, which write down that they were called."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.commands = folder / "bin"
        self.home.mkdir()
        self.commands.mkdir()
        for name in ("bash", "cut", "dirname", "env", "head", "sed", "sh", "sort"):
            (self.commands / name).symlink_to(str(shutil.which(name)))

    def give(self, *names: str, says: str = "") -> None:
        for name in names:
            command = self.commands / name
            command.write_text(f'#!/bin/sh\necho "{name} $*" >> "$HOME/called"\n{says}\n')
            command.chmod(0o755)

    def need(self, *tools: str) -> tuple[int, str]:
        environment = {"HOME": str(self.home), "PATH": str(self.commands)}
        ended = subprocess.run(
            [ROOT / ".ci" / "need", *tools], env=environment, capture_output=True, text=True, timeout=30
        )
        return ended.returncode, ended.stderr

    def called(self) -> list[str]:
        record = self.home / "called"
        return record.read_text().splitlines() if record.exists() else []


@pytest.fixture
def machine(folder: Path) -> Machine:
    return Machine(folder)


def test_a_machine_without_rust_gets_it_without_root(machine: Machine) -> None:
    machine.give("cc", "apt-get", "sudo")
    machine.give("id", says="echo 1000")
    # What is downloaded is a script for sh; this one only says what it was asked for.
    machine.give("curl", says="""echo 'echo "rustup $*" >> "$HOME/called"'""")
    assert machine.need("rust") == (0, "")
    *_, rustup = machine.called()
    assert rustup.startswith("rustup -y") and f"--default-toolchain {RUST}" in rustup
    assert not [call for call in machine.called() if call.startswith(("apt-get", "sudo"))]


@pytest.mark.parametrize(("version", "installed"), [("1.63.0", True), (f"{RUST}.0", False), ("2.0.1", False)])
def test_a_rust_that_is_too_old_is_not_used(machine: Machine, version: str, installed: bool) -> None:
    machine.give("cc")
    machine.give("cargo", says=f"echo 'cargo {version} (0123456 2026-01-01)'")
    machine.give("curl", says="""echo 'echo "rustup $*" >> "$HOME/called"'""")
    assert machine.need("rust") == (0, "")
    assert any(call.startswith("rustup") for call in machine.called()) == installed


def test_without_a_c_compiler_and_root_it_is_said_what_to_ask_for(machine: Machine) -> None:
    machine.give("apt-get", "cargo")
    machine.give("id", says="echo 1000")
    code, message = machine.need("rust")
    assert code == 1
    assert message.splitlines() == [
        "missing: a C compiler (cc)",
        "  hint: have an administrator install it; on Debian: apt-get install gcc libc6-dev",
    ]
    machine.give("sudo")
    machine.give("cargo", says=f"echo 'cargo {RUST}.0'")
    assert machine.need("rust") == (0, "")
    assert machine.called()[-2].endswith("apt-get install -y --no-install-recommends gcc libc6-dev")


def test_only_the_tests_want_a_browser() -> None:
    def planned(*targets: str) -> str:
        command = ["make", "--dry-run", "--directory", str(ROOT), *targets]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout

    assert "need chromium" in planned("test")
    assert "chromium" not in planned("quickstart", "python", "wheel")
    assert "need python" not in planned("quickstart")


def test_a_wheel_has_licences_and_a_description() -> None:
    settings: dict[str, Any] = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    licences = {path.name for pattern in project["license-files"] for path in ROOT.glob(pattern)}
    assert {"LICENSE-MIT", "LICENSE-APACHE"} <= licences
    texts = "".join((ROOT / name).read_text() for name in licences)
    assert "Permission is hereby granted" in texts and "Apache License" in texts
    assert "import kinfolk" in (ROOT / project["readme"]).read_text()
    assert all(line in project["classifiers"] for line in ("Typing :: Typed", "Operating System :: POSIX :: Linux"))


def test_a_source_distribution_has_all_that_the_build_reads() -> None:
    settings: dict[str, Any] = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())
    # The whole repository, as git lists it: with the lock file of all crates, and what is compiled in.
    assert settings["tool"]["maturin"]["sdist-generator"] == "git"
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, timeout=30, check=True)
        assert {"Cargo.lock", "pyproject.toml"} <= set(listed.stdout.splitlines())
    crate = (ROOT / settings["tool"]["maturin"]["manifest-path"]).parent
    assert crate / "python" == ROOT / settings["tool"]["maturin"]["python-source"]


def test_a_search_is_left_at_once_where_ctrl_c_was_ignored() -> None:
    # As a shell without a terminal starts what is put into the background.
    test = f"{Path(__file__).parent}/test_cluster.py::test_a_search_is_left_at_once"
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-m", "pytest", "-q", test]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ)
    assert ended.returncode == 0, ended.stdout
