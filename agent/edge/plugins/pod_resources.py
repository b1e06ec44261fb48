"""The socket of the podresources API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from agent.edge.plugins.apis import POD_RESOURCES
from agent.edge.plugins.rpc import serve
from agent.edge.plugins.wire import Unary


class PodResourcesServer:
    """`methods` of v1.PodResourcesLister at `socket`. run() is long-lived."""

    def __init__(self, socket: str, methods: Mapping[str, Unary]) -> None:
        self._socket, self._methods = socket, methods

    async def run(self) -> None:
        """Until cancelled. Raises Temporary when the socket cannot be made."""
        server = await serve(self._socket, [POD_RESOURCES.handler("PodResourcesLister", self._methods)])
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop(None)
