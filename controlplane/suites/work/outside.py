"""While a suite runs, this machine is a client from outside of the nodes' network (`plan/outside.py`)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from controlplane.cluster.model import Cluster
from controlplane.suites.plan import outside
from nodelib import command


@contextlib.asynccontextmanager
async def client_from_outside(cluster: Cluster) -> AsyncIterator[None]:
    """Raises CommandError. What a run that was killed has left is what the next one makes."""
    made, ended = outside.commands(cluster)
    try:
        for argv in made:
            await command.run(argv)
        yield
    finally:
        for argv in ended:
            await command.run(argv, check=False)
