"""The kubelet plugin of one DRA driver (dra v1 or v1beta1), called over its socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext

from agent.devices.model.dra import ClaimRef
from agent.plugins.edge.apis import DRA, DRA_BETA, DRA_HEALTH, DRA_HEALTH_ALPHA
from agent.plugins.edge.rpc import PluginClient
from nodelib.json_values import Json

_LIMIT = 45.0  # seconds; upstream's defaultClientCallTimeout
_APIS = {"v1.DRAPlugin": DRA, "v1beta1.DRAPlugin": DRA_BETA}
_HEALTH = {"v1.DRAResourceHealth": DRA_HEALTH, "v1alpha1.DRAResourceHealth": DRA_HEALTH_ALPHA}
_MOST = 1024 * 1024  # bytes of an answer about one claim, which has 32 devices at most
_MOST_HEALTH = 4 * 1024 * 1024  # bytes of one report: some ten thousand devices


Timed = Callable[[str, str], AbstractContextManager[None]]
"""Times one call, by the driver's name and the method's."""


def _untimed(driver: str, method: str) -> AbstractContextManager[None]:
    return nullcontext()


class DraDriver:
    """The connection to one driver, by `service`. Every call raises PluginError. End it with close()."""

    def __init__(self, name: str, endpoint: str, service: str, timed: Timed = _untimed) -> None:
        self._name, self.endpoint, self._api, self._timed = name, endpoint, _APIS[service], timed
        # One connection for all services, as upstream has it: drivers may watch it.
        self._client = PluginClient(self._api, f"DRA driver {name}", endpoint, most=_MOST_HEALTH)

    def is_connected(self) -> bool:
        """Whether its service can be reached now; tries to reach it, if not."""
        return self._client.is_connected()

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        """NodePrepareResourceResponse by claim UID."""
        return await self._call("DRAPlugin.NodePrepareResources", claims)

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        """NodeUnprepareResourceResponse by claim UID."""
        return await self._call("DRAPlugin.NodeUnprepareResources", claims)

    async def watch_health(self, service: str) -> AsyncIterator[list[Json]]:
        """All devices with their health, and again whenever that changes; `service`: as the driver offers it."""
        client = self._client.for_api(_HEALTH[service])
        async with aclosing(client.stream("DRAResourceHealth.NodeWatchResources", {})) as answers:  # type: ignore[type-var]
            async for answer in answers:
                yield answer["devices"]

    async def close(self) -> None:
        await self._client.close()

    async def _call(self, method: str, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        asked = [{"namespace": one.namespace, "uid": one.uid, "name": one.name} for one in claims]
        with self._timed(self._name, self._api.calls[method].path):
            answer = await self._client.call(method, {"claims": asked}, timeout=_LIMIT, most=_MOST)
            return dict(answer["claims"])
