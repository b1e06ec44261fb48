"""How full the node's table of connections is, and the process that counts who has them. Decides nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cni.model import Connections, Held, Holder, PodAddresses
from nodelib import command
from nodelib.errors import Temporary

_FOLDER = "/proc/sys/net/netfilter/nf_conntrack_"  # of the network namespace of who opens it
# It needs no library, and looks for none in the folder that the agent was started in.
_PROGRAM = ("-P", "-S", "-m", "cni.edge.connection_table")
_CODE = str(Path(__file__).resolve().parents[2])
_SECONDS = 60.0
_MOST = 1 << 20  # bytes of an answer


class KernelConnections:
    """The node's table. Its two numbers are read from files that stay open: finding them costs more than reading."""

    def __init__(self) -> None:
        self._files: tuple[int, ...] = ()

    def usage(self) -> tuple[int, int] | None:
        """How many entries the table has, and may have; None: the kernel tracks no connections."""
        try:
            if not self._files:
                self._files = tuple(os.open(_FOLDER + name, os.O_RDONLY | os.O_CLOEXEC) for name in ("count", "max"))
            entries, limit = (int(os.pread(file, 32, 0)) for file in self._files)
        except (OSError, ValueError):
            self.close()  # the module may have been unloaded
            return None
        return (entries, limit) if limit > 0 else None

    def close(self) -> None:
        for file in self._files:
            with suppress(OSError):
                os.close(file)
        self._files = ()

    async def count(self, pods: PodAddresses, most: int, cuts: Sequence[Held] = ()) -> Connections:
        """Count the connections of the pods, and delete `cuts` meanwhile; of 2 * `most` entries. Raises Temporary."""
        rows = [(one.holder, [one.unanswered, one.passing, one.living]) for one in cuts]
        order = {
            "ranges": [str(one) for one in pods.ranges],
            "own": sorted(pods.own),
            "most": 2 * most,
            "cut": [[holder.received, holder.address, row] for holder, row in rows],
        }
        argv, env = (sys.executable, *_PROGRAM), {**os.environ, "PYTHONPATH": _CODE}
        done = await command.run(argv, stdin=json.dumps(order).encode(), timeout=_SECONDS, env=env, most=_MOST)
        try:
            return _read(json.loads(done.stdout))
        except (ValueError, KeyError, TypeError) as error:
            raise Temporary(f"no answer: {error}", obj="table of connections", step="count them") from error


def _read(answer: dict[str, Any]) -> Connections:
    held = tuple(Held(Holder(address, received), *row) for received, address, row in answer["held"])
    return Connections(answer["entries"], held, answer["deleted"])
