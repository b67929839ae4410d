"""Whether this processor has the instructions that the compiled part uses: without them it would kill the interpreter."""

from __future__ import annotations

import platform
from pathlib import Path

WANTED = ("avx2", "fma")
"""As Linux spells them. What else x86-64-v3 has came with them."""


def refuse_old_processor(listing: Path = Path("/proc/cpuinfo")) -> None:
    """Raises ImportError where an instruction is lacking. Where nobody says which ones there are, nothing is refused."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return
    try:
        with listing.open() as lines:
            # Of the first processor: the others are the same, and there may be hundreds.
            flags = next((line.split() for line in lines if line.startswith("flags")), None)
    except OSError:
        return
    lacking = [name.upper() for name in WANTED if flags is not None and name not in flags]
    if lacking:
        raise ImportError(
            f"processor: lacks {' and '.join(lacking)}, want x86-64 from 2013 or later (x86-64-v3)", name="kinfolk"
        )
