"""A node that stays, for clients that are code of the user's own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from os import PathLike

from .. import _kinfolk


def serve(
    clients: Mapping[str, object] | None = None,
    *,
    superlink: str,
    node: str | PathLike[str] | None = None,
    partition: tuple[int, int] | None = None,
    root_certificates: str | PathLike[str] | None = None,
    insecure: bool = False,
    key: str | PathLike[str] | None = None,
    state: str | PathLike[str] | None = None,
) -> None:
    """Answers for the clients of this machine in runs on a SuperLink, until Ctrl-C, as `kinfolk node` does.

    `clients` are objects of your own, by their ids; or `node` names the machine's own file, or `partition` a part of the
    public data set that an experiment names. A file beside clients says how few rows an answer may be about, and what a
    message may cost. The clients stay as they are between messages; what they have to keep over a restart must be in
    `save` and `load`, and is written into the folder `state`, if the node has a key. Code that comes with a run is not
    executed.
    """
    _kinfolk.serve(
        superlink,
        node=node,
        partition=partition,
        clients=clients,
        root_certificates=root_certificates,
        insecure=insecure,
        key=key,
        state=state,
        told=_tell,
    )


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
