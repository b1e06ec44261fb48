"""Volumes that a controller attaches to the node first, as VolumeAttachments tell. Follows pkg/volume/csi."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agent.common.model.errors import AttachLimitExceeded
from agent.volumes.model.csi import CsiVolume
from agent.volumes.plan import csi as plan
from agent.volumes.ports import CsiVolumeApi
from nodelib.clock import Clock
from nodelib.errors import Temporary
from nodelib.json_values import Json

_ATTACH_TIMEOUT = 10.0  # seconds for one attempt; the pod's worker tries again after that
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class CsiAttachments:
    """`in_use` and `limit_exceeded`: see CsiVolumesDeps."""

    def __init__(
        self,
        node: str,
        api: CsiVolumeApi,
        clock: Clock,
        in_use: Callable[[frozenset[str]], Awaitable[None]],
        limit_exceeded: Callable[[str], Awaitable[None]],
    ) -> None:
        self._node, self._api, self._clock = node, api, clock
        self._in_use, self._limit_exceeded = in_use, limit_exceeded

    async def wait(self, volume: CsiVolume, described: Json | None) -> dict[str, str]:
        """Wait until a controller has attached the volume to this node; returns its metadata for the driver."""
        if not plan.needs_attachment(volume, described):
            return {}
        await self._in_use(frozenset({volume.key.unique_name}))
        name, clock = plan.attachment_name(volume, self._node), self._clock
        until, pause = clock.monotonic() + _ATTACH_TIMEOUT, _FIRST_PAUSE
        while True:
            found = await self._api.attachment(name)
            status = (found or {}).get("status") or {}
            if status.get("attached"):
                return dict(status.get("attachmentMetadata") or {})
            failure = (status.get("attachError") or {}).get("message")
            if plan.is_attach_limit(found, described):
                await self._limit_exceeded(volume.driver)
                raise AttachLimitExceeded(
                    failure or "the node has as many volumes as it can",
                    obj=f"VolumeAttachment {name}",
                    step="attach",
                    action=f"Move pods with volumes of {volume.driver} to other nodes; the agent tries again.",
                )
            if failure or clock.monotonic() >= until:
                raise Temporary(
                    failure or ("it is not attached yet" if found else "there is no VolumeAttachment yet"),
                    obj=f"VolumeAttachment {name}",
                    step="attach",
                    action=f"Make sure that the attacher of CSI driver {volume.driver} runs; the agent tries again.",
                )
            await clock.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
