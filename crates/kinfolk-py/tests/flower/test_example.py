"""The example as a machine gets it, and the certificates by which machines know the server."""

from __future__ import annotations

import io
import shutil
import ssl
import zipfile
from pathlib import Path

import keys
from conftest import EXAMPLE
from flwr.cli.build import build_fab_from_disk


def test_neither_results_nor_keys_are_sent_to_machines(tmp_path: Path) -> None:
    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("runs", "certificates", "keys"))
    before = sent(app)
    assert {"pyproject.toml", "client.py", "server.py", "experiment.toml"} <= set(before)
    # Of kinds that Flower would send, and of one that it would not.
    for private in ("runs/shops/summary.json", "certificates/notes.md", "keys/north.json", ".venv/lib/a.py", "data/a.csv"):
        (app / private).parent.mkdir(parents=True)
        (app / private).write_text("{}")
    assert sent(app) == before


def sent(app: Path) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))).namelist()


def test_certificates_satisfy_a_strict_program(tmp_path: Path) -> None:
    keys.make_certificates(tmp_path, ["127.0.0.1"])
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(tmp_path / "superlink.pem", tmp_path / "superlink.key")
    here = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    here.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = there.wrap_bio(to_server, to_client, server_side=True)
    client = here.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    assert client.version()
