"""The addresses of this node's interfaces."""

from __future__ import annotations

import orjson

from nodelib.command import run_sync


def local_addresses() -> list[str]:
    """Every address of every interface. Blocking. Raises CommandError."""
    found = []
    for link in orjson.loads(run_sync(("ip", "-json", "address", "show")).stdout or b"[]"):
        for entry in link.get("addr_info") or []:
            if entry.get("local"):
                found.append(str(entry["local"]))
    return found
