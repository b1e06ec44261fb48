"""HTTP requests to the demo, from this machine or from inside a node's network namespace."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from controlplane.cluster.edge import probe
from controlplane.machine.edge.namespaces import entered
from nodelib import command


@dataclass(frozen=True, slots=True)
class Answers:
    """Bodies of the answers, and the last error."""

    bodies: tuple[str, ...]
    error: str = ""


async def ask(
    address: str,
    port: int,
    path: str,
    *,
    net: str = "",
    times: int = 20,
    seconds: float = 5,
    want: int = 1,
) -> Answers:
    """GET http://address:port/path up to `times` times within `seconds`, until there are `want` different answers.

    Never raises when the server does not answer: the error is part of the result.
    """
    argv = [sys.executable, "-I", "-S", probe.__file__, address, str(port), path, str(times), str(seconds), str(want)]
    done = await command.run(entered(net, argv) if net else argv, check=False, timeout=seconds + 10)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return Answers((), done.stderr.decode(errors="replace").strip()[-300:] or "no answer")
    return Answers(tuple(found["answers"]), found["error"])
