"""The API objects around CSI: CSIDriver, CSINode, VolumeAttachment, claims, the Node, secrets and tokens."""

from __future__ import annotations

import asyncio
import base64
import contextlib

from agent.common.model.pods import Pod
from agent.common.work.observable import Signal
from agent.volumes.model.csi import SecretRef
from agent.volumes.model.sources import TokenRequest
from agent.volumes.plan import csi as plan
from agent.volumes.work.tokens import TokenCache
from nodelib.errors import NotFound, Temporary
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient
from nodelib.kube.reflector import Reflector
from nodelib.tasks import Work

_STORAGE = "/apis/storage.k8s.io/v1"
_SYNC_TIMEOUT = 5.0  # seconds to wait for the first list of CSIDrivers


class CsiObjects:
    """Every call raises ApiError or Temporary. CSIDrivers are watched once the first of them has been asked for:
    then `drivers_changed` fires for each change of one.
    """

    def __init__(self, client: KubeClient, tokens: TokenCache, node: str) -> None:
        self._client, self._tokens, self._node = client, tokens, node
        self.drivers_changed = Signal()
        self._drivers = Reflector(
            client,
            f"{_STORAGE}/csidrivers",
            name="CSIDrivers",
            on_change=lambda change, new, old: self.drivers_changed.fire(),
        )
        self._wanted = asyncio.Event()

    def tasks(self) -> list[tuple[str, Work]]:
        """(name, work) of the long-lived tasks."""
        return [("csi drivers", self._run_drivers)]

    async def driver(self, name: str) -> Json | None:
        """The CSIDriver object; None: there is none."""
        self._wanted.set()
        if not self._drivers.synced.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_TIMEOUT):
                    await self._drivers.synced.wait()
        if not self._drivers.synced.is_set():
            action = "The agent tries again as soon as the API server answers."
            problem = self._drivers.last_error or "not read yet"
            raise Temporary(problem, obj="CSIDrivers", step="first list", action=action, retry_after=1)
        return self._drivers.store.get(("", name))

    def attaches(self, name: str) -> bool:
        """Whether a controller attaches volumes of this driver, as far as is known now: true before the first list."""
        return plan.attaches(self._drivers.store.get(("", name)))

    async def attachment(self, name: str) -> Json | None:
        """The VolumeAttachment; None: there is none."""
        return await self._get_or_none(f"{_STORAGE}/volumeattachments/{name}")

    async def claim(self, namespace: str, name: str) -> Json | None:
        """The PersistentVolumeClaim; None: there is none."""
        return await self._get_or_none(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")

    async def volume(self, name: str) -> Json | None:
        """The PersistentVolume; None: there is none."""
        return await self._get_or_none(f"/api/v1/persistentvolumes/{name}")

    async def patch_claim(self, namespace: str, name: str, patch: Json) -> None:
        """Strategic merge patch of the claim's status."""
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}/status"
        await self._client.patch(path, patch, kind="strategic")

    async def secret(self, ref: SecretRef) -> dict[str, str]:
        """The secret's decoded values. Raises NotFound."""
        found = await self._get_or_none(f"/api/v1/namespaces/{ref.namespace}/secrets/{ref.name}")
        if found is None:
            raise NotFound("not found", obj=f"secret {ref.namespace}/{ref.name}", action="Create it.")
        data = found.get("data") or {}
        return {key: base64.b64decode(value).decode(errors="surrogateescape") for key, value in data.items()}

    async def token(self, pod: Pod, request: TokenRequest) -> Json:
        """TokenRequestStatus of a token bound to the pod."""
        return await self._tokens.status(pod, request)

    async def node(self) -> Json:
        return await self._client.get(f"/api/v1/nodes/{self._node}")

    async def patch_node(self, patch: Json) -> None:
        """Patch labels and annotations, which a node may write through its status subresource."""
        await self._client.patch(f"/api/v1/nodes/{self._node}/status", patch, kind="strategic")

    async def csi_node(self) -> Json | None:
        return await self._get_or_none(f"{_STORAGE}/csinodes/{self._node}")

    async def write_csi_node(self, wanted: Json) -> None:
        """Create or replace it. A conflict is an ApiError (409)."""
        if wanted["metadata"].get("resourceVersion"):
            await self._client.put(f"{_STORAGE}/csinodes/{self._node}", wanted)
        else:
            await self._client.post(f"{_STORAGE}/csinodes", wanted)

    def drop_pod(self, uid: str) -> None:
        """The pod is gone: drop its tokens."""
        self._tokens.drop_pod(uid)

    async def _get_or_none(self, path: str) -> Json | None:
        try:
            return await self._client.get(path)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def _run_drivers(self) -> None:
        await self._wanted.wait()
        await self._drivers.run()
