"""Who the driver is: the identity service, and the answer to the kubelet that registers it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from csi.model import DRIVER
from nodelib.json_values import Json
from nodelib.version import KUBERNETES_VERSION

log = logging.getLogger(__name__)

_CONTROLLER, _TOPOLOGY = 1, 2  # PluginCapability.Service
_ONLINE = 1  # PluginCapability.VolumeExpansion
_SPECIFICATION = "1.0.0"  # what a kubelet knows; its minor versions are compatible


class Identity:
    """The identity service, and the registration service for a driver that listens at `endpoint`."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def methods(self) -> dict[str, Callable[[Json], Awaitable[Json]]]:
        return {"GetPluginInfo": self.info, "GetPluginCapabilities": self.capabilities, "Probe": self.probe}

    def registration(self) -> dict[str, Callable[[Json], Awaitable[Json]]]:
        return {"GetInfo": self.plugin, "NotifyRegistrationStatus": self.registered}

    async def info(self, _: Json) -> Json:
        return {"name": DRIVER, "vendor_version": KUBERNETES_VERSION}

    async def capabilities(self, _: Json) -> Json:
        services = [{"service": {"type": one}} for one in (_CONTROLLER, _TOPOLOGY)]
        return {"capabilities": [*services, {"volume_expansion": {"type": _ONLINE}}]}

    async def probe(self, _: Json) -> Json:
        return {"ready": {"value": True}}

    async def plugin(self, _: Json) -> Json:
        return {
            "type": "CSIPlugin",
            "name": DRIVER,
            "endpoint": self._endpoint,
            "supported_versions": [_SPECIFICATION],
        }

    async def registered(self, request: Json) -> Json:
        if request["plugin_registered"]:
            log.info("the kubelet has registered the driver")
        else:
            log.error("the kubelet has not registered the driver: %s", request["error"][:1000])
        return {}
