"""Whole runs on a real SuperLink with stock SuperNodes, on loopback, with TLS and with a key for each SuperNode.

A question takes seconds here, however small it is, so there are few runs, and each shows several things.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest
from conftest import EXAMPLE
from found import clusters, finish, models, repeat, wait_until
from loopback import Loopback
from run import MACHINES, SHOPS, start_machines, write_table

import kinfolk

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def shops(loopback: Loopback) -> Loopback:
    """Three machines with a table each, and a fourth that nobody knows."""
    loopback.add_key("stranger", register=False)
    loopback.start_supernode("stranger", "partition-id=0 num-partitions=1")
    start_machines(loopback, stock=True)
    return loopback


def test_the_example_gives_the_bits_of_one_process(shops: Loopback, tmp_path: Path) -> None:
    there = tmp_path / "there"
    assert finish(shops, shops.start_run(EXAMPLE, out=str(there))) == "finished:completed"

    table = tmp_path / "all.csv"
    write_table(table, range(SHOPS))
    here = tmp_path / "here"
    kinfolk.run(EXAMPLE / "experiment.toml", out=here, single_answers=True, **{"data.path": str(table)})

    assert len(models(there)) == 4
    assert models(there) == models(here)
    for label in ("ifca", "odcl"):
        found = clusters(there, label)
        assert found == clusters(here, label)
        assert len(found) == SHOPS
        kinds = {(int(shop.removeprefix("shop-")) % 2, cluster) for shop, cluster in found.items()}
        assert len(kinds) == 2, f"{label}: {found}"


def test_clients_go_on_from_what_they_kept(shops: Loopback, tmp_path: Path) -> None:
    there, here, table = tmp_path / "there", tmp_path / "here", tmp_path / "all.csv"
    alone = HERE / "alone.toml"
    assert finish(shops, shops.start_run(EXAMPLE, experiment=str(alone), out=str(there))) == "finished:completed"
    write_table(table, range(SHOPS))
    kinfolk.run(alone, out=here, **{"data.path": str(table)})
    assert (there / "clients.csv").read_bytes() == (here / "clients.csv").read_bytes()
    assert models(there) == {}, "personal models stay with their clients"
    kept: dict[str, bytes] = {}
    for name in MACHINES:
        said = f"personal models of 4 clients are kept on their machine, {name}: kinfolk-models/alone/local/0"
        assert said in repeat(there, "local")["notes"]
        kept |= {path.name: path.read_bytes() for path in shops.folder.glob(f"{name}/kinfolk-models/alone/local/0/client-*")}
    assert len(kept) == SHOPS
    assert kept == {Path(name).name: model for name, model in models(here).items()}


def test_a_fit_leaves_own_models_on_their_machines(shops: Loopback, tmp_path: Path) -> None:
    there = tmp_path / "there"
    run = shops.start_run(EXAMPLE, experiment="fit.toml", out=str(there), set="fit.families=2, fit.quick=true")
    assert finish(shops, run) == "finished:completed"
    served = kinfolk.load(there)
    families = dict(zip(served.clients_["client"], served.clients_["family"].tolist(), strict=True))
    assert len(families) == SHOPS
    assert len({(int(shop.removeprefix("shop-")) % 2, family) for shop, family in families.items()}) == 2
    assert set(served.coef_["model"]) == {"global", "family"}
    assert "the machines were asked 6 questions" in served.show()
    for number, name in enumerate(MACHINES):
        own = kinfolk.load(shops.folder / name / "kinfolk-models/shops/fit/0")
        table = tmp_path / f"{name}.csv"
        write_table(table, range(number, SHOPS, len(MACHINES)))
        assert len(own.clients_["client"]) == SHOPS // len(MACHINES)
        assert own.score(pandas.read_csv(table)) > 0.9


def test_an_unregistered_machine_is_refused(shops: Loopback) -> None:
    stranger = shops.processes["stranger"]
    wait_until(lambda: stranger.poll() is not None)
    assert stranger.returncode != 0
    assert "Failed to activate SuperNode" in shops.log("stranger")

    def online() -> int:
        known = json.loads(shops.flwr("supernode", "list", "loopback", "--format", "json"))["nodes"]
        return sum(node["status"] == "online" for node in known)

    # Others that were there before may have died without a word.
    wait_until(lambda: online() == len(MACHINES))


def test_a_fault_of_the_input_is_a_failed_run(shops: Loopback, capfd: pytest.CaptureFixture[str]) -> None:
    run = shops.start_run(EXAMPLE, set="method.ifca.clusters=0")
    assert finish(shops, run) == "finished:failed"
    assert "method.ifca.clusters: got 0, want " in capfd.readouterr().out


def test_clients_that_are_code_of_the_users_own(shops: Loopback, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    assert finish(shops, shops.start_run(HERE / "own", out=str(folder))) == "finished:completed"
    found = clusters(folder, "ifca")
    assert len(found) == SHOPS
    assert len({(int(shop.removeprefix("shop-")) % 2, cluster) for shop, cluster in found.items()}) == 2


def test_a_machine_that_dies_is_reported_and_the_others_go_on(loopback: Loopback, tmp_path: Path) -> None:
    """With a part of a data set on each machine."""
    for name in [name for name in loopback.processes if name != "superlink"]:
        loopback.stop(name)
    for number, name in enumerate(("one", "two", "three")):
        loopback.add_key(name)
        loopback.start_supernode(name, f"partition-id={number} num-partitions=3")
    folder = tmp_path / "lost"
    settings = "method.ifca.rounds=3"
    run = loopback.start_run(EXAMPLE, experiment=str(HERE / "digits.toml"), out=str(folder), set=settings, timeout=40)
    # The first answer is who is there, the second the first round.
    wait_until(lambda: loopback.log("three").count("Sent successfully") >= 2)
    loopback.kill("three")
    assert finish(loopback, run) == "finished:completed"
    ifca = repeat(folder, "ifca")
    assert (ifca["status"], ifca["rounds"]) == ("done", 3)
    [note] = [note for note in ifca["notes"] if note.startswith("three: ")]
    assert "from 8, 9, 10, 11: " in note
    given = {client for client, cluster in clusters(folder, "ifca").items() if cluster}
    assert given == {str(client) for client in range(8)}
