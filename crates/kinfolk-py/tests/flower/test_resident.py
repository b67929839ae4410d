"""Whole runs with nodes of Kinfolk's own on a real SuperLink, with TLS and a key for every node."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import EXAMPLE, PROGRAM
from found import clusters, finish, models, repeat, wait_until
from loopback import HOST, Loopback, free_port
from run import MACHINES, SHOPS, start_machines, write_node, write_table

import kinfolk

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def nodes(loopback: Loopback) -> Iterator[dict[str, Path]]:
    """The files of three machines with a node each, of which answers may be about any number of rows."""
    files = {}
    for number, name in enumerate(MACHINES):
        place = f"resident-{name}"
        files[place] = write_node(loopback.folder / place, number, name)
        files[place].write_text(files[place].read_text().replace("minimum_rows = 10", "minimum_rows = 1"))
        loopback.add_key(place)
        loopback.start_node(place, files[place])
    yield files
    for name in files:
        if name in loopback.processes:
            loopback.stop(name)
            assert loopback.log(name).endswith("stopped\n")
    known = json.loads(loopback.flwr("supernode", "list", "loopback", "--format", "json"))["nodes"]
    assert {node["status"] for node in known} == {"offline"}, "nodes say goodbye"


def kept(nodes: dict[str, Path], within: str) -> dict[str, bytes]:
    """Clients' own models on the machines."""
    found = [path for node in nodes.values() for path in node.parent.glob(f"kinfolk-models/{within}/client-*")]
    return {path.name: path.read_bytes() for path in found}


def of(label: str, found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: model for name, model in found.items() if name.startswith(f"models/{label}/")}


def command(*arguments: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KINFOLK_PYTHON": sys.executable, "FLWR_HOME": str(home)}
    return subprocess.run([PROGRAM, *arguments], env=environment, capture_output=True, text=True)


def test_all_methods_give_the_bits_of_one_process(loopback: Loopback, nodes: dict[str, Path], tmp_path: Path) -> None:
    there, here, table = tmp_path / "there", tmp_path / "here", tmp_path / "all.csv"
    families = HERE / "families.toml"
    run = loopback.start_run(EXAMPLE, experiment=str(families), out=str(there), machines=3)
    assert finish(loopback, run) == "finished:completed"
    write_table(table, range(SHOPS))
    kinfolk.run(families, out=here, single_answers=True, **{"data.path": str(table)})
    labels = ("ifca", "odcl", "sr-fca", "hierarchical", "auto")
    for label in labels:
        assert repeat(there, label)["status"] == repeat(here, label)["status"] == "done"
        assert clusters(there, label) == clusters(here, label)
        own = {f"models/{label}/0/{name}": model for name, model in kept(nodes, f"families/{label}/0").items()}
        assert of(label, models(there)) | own == of(label, models(here)) != {}
        assert len(own) == (SHOPS if label in ("hierarchical", "auto") else 0)


def test_secure_sums_have_the_bits_of_one_process(loopback: Loopback, nodes: dict[str, Path], tmp_path: Path) -> None:
    there, here, table = tmp_path / "there", tmp_path / "here", tmp_path / "all.csv"
    secure = HERE / "secure.toml"
    run = loopback.start_run(EXAMPLE, experiment=str(secure), out=str(there), machines=3)
    assert finish(loopback, run) == "finished:completed"
    write_table(table, range(SHOPS))
    kinfolk.run(secure, out=here, **{"data.path": str(table)})
    assert models(there) == models(here) != {}
    ours, theirs = repeat(here, "ifca"), repeat(there, "ifca")
    assert (ours["status"], ours["metric"]) == (theirs["status"], theirs["metric"])
    assert "secure sums over 3 machines: with fewer than four of them none may be missing" in theirs["notes"]
    for name, node in nodes.items():
        said = loopback.log(name)
        assert said.count(", masked") > 8 and "keys of secure sums to forget" in said
        assert (node.parent / "kinfolk-identity").stat().st_mode & 0o777 == 0o600
        printed = command("node", node, "--identity", home=tmp_path)
        assert printed.returncode == 0 and re.fullmatch("[0-9a-f]{64}\n", printed.stdout), printed.stderr


def test_nodes_draw_the_noise_that_hides_clients_and_rows(
    loopback: Loopback, nodes: dict[str, Path], tmp_path: Path
) -> None:
    ca = loopback.folder / "certificates" / "ca.pem"
    superlink = ["--superlink", f"{HOST}:{loopback.port}", "--root-certificates", ca, "--machines", "3"]
    for level in ("client", "record"):
        settings = {"level": f'"{level}"', "epsilon": "1000.0", "public_schema": "true"}
        options = [word for key, value in settings.items() for word in ("--set", f"privacy.{key}={value}")]
        out = tmp_path / level
        done = command(
            "run", "--on", "flower", *superlink, HERE / "secure.toml", *options, "--out", out,
            home=loopback.home("flwr"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        notes = " ".join(repeat(out, "ifca")["notes"])
        assert "Noise from the operating system" in notes, notes
        for name, node in nodes.items():
            assert f"with noise that hides single {'clients' if level == 'client' else 'rows'}" in loopback.log(name)
            account = json.loads((node.parent / "kinfolk-account" / "account.json").read_text())
            assert len(account["spent"]) == len(account["disclosures"])


def test_the_program_runs_an_experiment_without_an_app_folder(
    loopback: Loopback, nodes: dict[str, Path], tmp_path: Path
) -> None:
    there, here, table = tmp_path / "there", tmp_path / "here", tmp_path / "all.csv"
    ca = loopback.folder / "certificates" / "ca.pem"
    superlink = ["--superlink", f"{HOST}:{loopback.port}", "--root-certificates", ca, "--machines", "3"]
    # Kinds of rows, by a name in Flower's configuration.
    done = command(
        "run", "--on", "flower", "--superlink", "loopback", "--machines", "3", HERE / "kinds.toml", "--out", there,
        home=loopback.home("flwr"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    write_table(table, range(SHOPS))
    alone = kinfolk.run(HERE / "kinds.toml", out=here, single_answers=True, **{"data.path": str(table)})
    own = {f"models/fedgrem/0/{name}": model for name, model in kept(nodes, "kinds/fedgrem/0").items()}
    assert len(own) == SHOPS
    assert models(there) | own == models(here)
    assert done.stdout.splitlines()[0] == str(alone).splitlines()[0]
    assert f"report: {there / 'report.html'}" in done.stderr
    # A fit, by the address.
    options = ["--client", "shop", "--target", "spent", "--families", "2", "--quick", "--out", tmp_path / "fitted"]
    done = command("fit", "--on", "flower", *superlink, *options, home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the machines were asked" in done.stdout
    assert set(kinfolk.load(tmp_path / "fitted").clients_["client"]) == {f"shop-{shop:02}" for shop in range(SHOPS)}


def test_a_run_that_is_stopped_goes_on(loopback: Loopback, nodes: dict[str, Path], tmp_path: Path) -> None:
    there, here, table = tmp_path / "there", tmp_path / "here", tmp_path / "all.csv"
    alone = [HERE / "alone.toml", "--set", "method.local.rounds=25", "--set", "name=stopped"]
    line = [PROGRAM, "run", "--on", "flower", "--superlink", "loopback", "--machines", "3", *alone, "--out", there]
    environment = loopback.environment("flwr") | {"KINFOLK_PYTHON": sys.executable}
    log, node = tmp_path / "log", next(iter(nodes))
    before = loopback.log(node).count("train, local")
    with open(log, "wb") as file, subprocess.Popen(line, env=environment, stdout=file, stderr=file) as process:
        wait_until(lambda: loopback.log(node).count("train, local") >= before + 8)
        process.send_signal(signal.SIGINT)
    assert process.returncode == 1
    assert "--resume" in log.read_text()
    assert not (there / "summary.json").exists()
    subprocess.run([*line, "--resume"], env=environment, check=True, capture_output=True)
    write_table(table, range(SHOPS))
    settings = {"data.path": str(table), "method.local.rounds": 25, "name": "stopped"}
    kinfolk.run(HERE / "alone.toml", out=here, **settings)
    assert (there / "clients.csv").read_bytes() == (here / "clients.csv").read_bytes()
    own = {f"models/local/0/{name}": model for name, model in kept(nodes, "stopped/local/0").items()}
    assert own == models(here)


def test_a_nodes_policy_holds_whatever_a_run_asks_for(
    loopback: Loopback, nodes: dict[str, Path], tmp_path: Path
) -> None:
    """Two questions about a client are answered, and no third; the run goes on without it, and says so."""
    name, file = next(iter(nodes.items()))
    allowed = file.read_text()
    file.write_text(allowed + "[node.policy]\ndisclosures_per_run = 2\n")
    loopback.stop(name)
    loopback.start_node(name, file)
    try:
        there = tmp_path / "there"
        line = ["run", "--on", "flower", "--superlink", "loopback", "--machines", "3", HERE / "alone.toml"]
        done = command(*line, "--set", "name=policy", "--out", there, home=loopback.home("flwr"))
        assert done.returncode == 0, done.stderr
        refusal = "disclosure 3 about one client in this run: this machine allows 2 (node.policy.disclosures_per_run)"
        assert f"refused: {refusal}" in loopback.log(name)
        assert any(refusal in note for note in repeat(there, "local")["notes"])
        account = json.loads((file.parent / "kinfolk-account" / "account.json").read_text())
        assert {2} == {count for counts in account["runs"].values() for count in counts.values()}
    finally:
        file.write_text(allowed)
        loopback.stop(name)
        loopback.start_node(name, file)


def test_faults_of_the_input_are_told_by_the_program(loopback: Loopback, tmp_path: Path) -> None:
    home = loopback.home("flwr")
    wrong = command("run", "--on", "flower", "--superlink", "loopback", EXAMPLE / "experiment.toml",
                    "--set", "method.ifca.clusters=0", home=home)  # fmt: skip
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "method.ifca.clusters: got 0, want " in wrong.stderr
    nowhere = command("run", "--on", "flower", "--superlink", "nowhere", EXAMPLE / "experiment.toml", home=home)
    assert nowhere.returncode == 1
    assert "flwr run: " in nowhere.stderr and "nowhere" in nowhere.stderr
    environment = os.environ | {"KINFOLK_PYTHON": "/usr/bin/false"}
    bare = subprocess.run(
        [PROGRAM, "run", "--on", "flower", "--superlink", "loopback", "quickstart"],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert bare.returncode == 2
    assert "has no Kinfolk with Flower" in bare.stderr and "KINFOLK_PYTHON" in bare.stderr


def test_a_stock_supernode_and_nodes_that_stay_share_a_run_whose_code_they_do_not_execute(
    loopback: Loopback, nodes: dict[str, Path], tmp_path: Path
) -> None:
    stock = next(iter(nodes))
    loopback.stop(stock)
    loopback.add_key("mixed")
    loopback.start_supernode("mixed", f'node="{nodes[stock]}"')
    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("runs", "certificates", "keys", "__pycache__"))
    code = "import os, pathlib\npathlib.Path(os.environ['FLWR_HOME'], 'executed').touch()\n"
    (app / "client.py").write_text(code + (app / "client.py").read_text())
    text = (app / "experiment.toml").read_text()
    (app / "experiment.toml").write_text(text[: text.index("[[method]]")] + '[[method]]\nname = "odcl"\n')
    there, here, table = tmp_path / "there", tmp_path / "here", tmp_path / "all.csv"

    def fetched() -> int:
        return loopback.log("superlink").count("POST /v1/fleet/get-fab")

    before = fetched()
    assert finish(loopback, loopback.start_run(app, out=str(there), machines=3)) == "finished:completed"
    loopback.stop("mixed")
    write_table(table, range(SHOPS))
    kinfolk.run(app / "experiment.toml", out=here, single_answers=True, **{"data.path": str(table)})
    assert models(there) == models(here) != {}
    executed = {name for name in (*nodes, "mixed") if (loopback.home(name) / "executed").exists()}
    assert executed == {"mixed"}
    assert fetched() == before + 1, "the code is fetched by the SuperNode alone"


def test_keys_are_rotated_and_machines_and_clients_withdrawn_between_runs(tmp_path: Path) -> None:
    with Loopback(tmp_path / "loopback") as loopback:
        start_machines(loopback, stock=False)
        files = {name: loopback.folder / name / "node.toml" for name in MACHINES}
        first, _, third = MACHINES

        def run(name: str, machines: int) -> Path:
            out = tmp_path / name
            line = ["run", "--on", "flower", "--superlink", "loopback", "--machines", str(machines), HERE / "alone.toml"]
            done = command(*line, "--set", f"name={name}", "--out", out, home=loopback.home("flwr"))
            assert done.returncode == 0, done.stderr
            return out

        def gone() -> list[str]:
            nodes = json.loads(loopback.flwr("supernode", "list", "loopback", "--format", "json"))["nodes"]
            return [node["node-id"] for node in nodes if node["status"] == "offline"]

        before = run("before", 3)
        everybody = clusters(before, "local").keys()
        # A key goes, and another comes for the same machine.
        loopback.stop(first)
        wait_until(lambda: len(gone()) == 1)
        loopback.flwr("supernode", "unregister", gone()[0], "loopback")
        ca, key = loopback.folder / "certificates" / "ca.pem", loopback.folder / "keys" / first
        line = ["node", "--superlink", f"{HOST}:{loopback.port}", "--root-certificates", ca, "--key", key, files[first]]
        refused = command(*line, home=tmp_path)
        assert refused.returncode == 2 and "its key is not registered there" in refused.stderr
        loopback.add_key("rotated")
        loopback.start_node("rotated", files[first])
        after = run("after", 3)
        assert (after / "clients.csv").read_bytes() == (before / "clients.csv").read_bytes()
        # A client goes: its rows are no longer in its machine's table.
        table, withdrawn = files[third].parent / "shops.csv", "shop-02"
        rows = table.read_text()
        table.write_text("".join(row for row in rows.splitlines(keepends=True) if not row.startswith(f"{withdrawn},")))
        assert clusters(run("without-a-client", 3), "local").keys() == everybody - {withdrawn}
        # A machine goes: its node ends.
        loopback.stop(third)
        wait_until(lambda: len(gone()) == 1)
        left = clusters(run("without-a-machine", 2), "local").keys()
        assert left == {client for client in everybody if f"\n{client}," not in rows}


def test_an_unregistered_key_and_strange_certificates_are_refused(
    loopback: Loopback, nodes: dict[str, Path], tmp_path: Path
) -> None:
    loopback.add_key("unknown", register=False)
    node = next(iter(nodes.values()))
    superlink = ["--superlink", f"{HOST}:{loopback.port}"]
    key = ["--key", loopback.folder / "keys" / "unknown", "--state", tmp_path]
    ca = ["--root-certificates", loopback.folder / "certificates" / "ca.pem"]
    for arguments, wanted in [
        ([*ca, *key], "its key is not registered there"),
        (ca, "it lets in nobody without a registered key"),
        (key, "no trusted connection"),
        (["--insecure", *key], "Flower takes keys over encrypted connections only"),
    ]:
        done = command("node", *superlink, *arguments, node, home=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert wanted in done.stderr


def test_a_node_outlasts_its_superlink(tmp_path: Path) -> None:
    """Without TLS and keys: the node registers itself, and again with a SuperLink that knows nothing of it."""
    loopback = Loopback(tmp_path)
    address = f"{HOST}:{loopback.port}"
    superlink = ["flower-superlink", "--insecure", "--host", HOST, "--port", str(loopback.port)]
    superlink += ["--disable-runtime-dependency-installation"]
    try:
        loopback.start("node", [str(PROGRAM), "node", "--superlink", address, "--insecure", "--partition", "0/1"])
        wait_until(lambda: "cannot be reached" in loopback.log("node"))
        for times in (1, 2):
            loopback.start("superlink", superlink)
            wait_until(lambda times=times: loopback.log("node").count(f"connected to SuperLink {address}") == times)
            loopback.kill("superlink")
        said = loopback.log("node")
        first, second = re.findall(r"as node (\d+)", said)
        assert first != second, "the second SuperLink knew nothing of it"
        assert said.count("cannot be reached") <= 3, "said once each time"
        process = loopback.processes.pop("node")
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(20.0) == 0
        assert loopback.log("node").endswith("stopped\n")
    finally:
        loopback.stop_all()


SERVE = """
import sys
sys.path.insert(0, {own!r})
from types import SimpleNamespace
from client import shops
from kinfolk.flower import serve
config = {{"node": {node!r}}}
serve(shops(SimpleNamespace(node_config=config)), node={node!r}, superlink={superlink!r}, root_certificates={ca!r}, key={key!r})
"""


def test_clients_of_the_users_own_stay_in_a_process(loopback: Loopback, nodes: dict[str, Path], tmp_path: Path) -> None:
    for name in nodes:
        if name in loopback.processes:
            loopback.stop(name)
    try:
        for name, node in nodes.items():
            script = SERVE.format(
                own=str(HERE / "own"),
                node=str(node),
                superlink=f"{HOST}:{loopback.port}",
                ca=str(loopback.folder / "certificates" / "ca.pem"),
                key=str(loopback.folder / "keys" / name),
            )
            loopback.start(name, [sys.executable, "-c", script])
        folder = tmp_path / "own"
        assert finish(loopback, loopback.start_run(HERE / "own", out=str(folder))) == "finished:completed"
        found = clusters(folder, "ifca")
        assert len(found) == SHOPS
        assert len({(int(shop.removeprefix("shop-")) % 2, cluster) for shop, cluster in found.items()}) == 2
    finally:
        for name in nodes:
            process = loopback.processes.pop(name)
            # Ctrl-C.
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(20.0) == 0
