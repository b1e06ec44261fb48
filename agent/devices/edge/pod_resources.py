"""The socket of the podresources API, in both of its versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from agent.devices.edge.pod_resources_metrics import PodResourcesMetrics
from agent.plugins.edge.apis import POD_RESOURCES, POD_RESOURCES_ALPHA
from agent.plugins.edge.rate_limit import RateLimit, TokenBucket
from nodelib.errors import NodewrightError
from nodelib.plugin_apis.server import serve
from nodelib.plugin_apis.wire import Unary

_SERVICE = "PodResourcesLister"
_CALLS_A_SECOND, _BURST = 100, 10  # pkg/kubelet/apis/podresources/constants.go, for both versions together


class PodResourcesServer:
    """Serves `methods` of v1.PodResourcesLister at `socket`; v1alpha1 has only List.

    Requests beyond upstream's rate limit are refused. run() is long-lived.
    """

    def __init__(
        self,
        socket: str,
        methods: Mapping[str, Unary],
        metrics: PodResourcesMetrics,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._socket, self._methods, self._metrics = socket, methods, metrics
        self._bucket = TokenBucket(_CALLS_A_SECOND, _BURST, monotonic)

    async def run(self) -> None:
        """Until cancelled. Raises Temporary when the socket cannot be created."""
        handlers = [
            POD_RESOURCES.handler(_SERVICE, self._counted("v1", self._methods)),
            POD_RESOURCES_ALPHA.handler(_SERVICE, self._counted("v1alpha1", {"List": self._list_alpha})),
        ]
        server = await serve(self._socket, handlers, [RateLimit(self._bucket)])
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop(None)

    def _counted(self, version: str, methods: Mapping[str, Unary]) -> dict[str, Unary]:
        def counted(method: str, work: Unary) -> Unary:
            async def answer(request: dict[str, Any]) -> dict[str, Any]:
                self._metrics.asked(version, method)
                try:
                    return await work(request)
                except NodewrightError:
                    self._metrics.failed(version, method)
                    raise

            return answer

        return {method: counted(method, work) for method, work in methods.items()}

    async def _list_alpha(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer with only the fields that v1alpha1 has."""
        answer = await self._methods["List"](request)
        return {
            "pod_resources": [
                {
                    "name": pod["name"],
                    "namespace": pod["namespace"],
                    "containers": [{"name": one["name"], "devices": _alpha_devices(one)} for one in pod["containers"]],
                }
                for pod in answer["pod_resources"]
            ]
        }


def _alpha_devices(container: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"resource_name": one["resource_name"], "device_ids": one["device_ids"]} for one in container.get("devices", ())
    ]
