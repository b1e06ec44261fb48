"""PodObjects: all API objects that pods need, from one place: objects, tokens, trust bundles, claims, Services."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from agent.common.model.pods import Pod
from agent.volumes.model.sources import (
    MOST_OBJECTS,
    MOST_OBJECTS_OF_NAMESPACE,
    SECRET,
    FoundClaim,
    ObjectRef,
    TokenRequest,
)
from agent.volumes.plan.services import slim
from agent.volumes.work.named_objects import NamedObjects
from agent.volumes.work.tokens import TokenCache
from agent.volumes.work.watched_objects import ObjectKey, WatchedObjects
from nodelib.clock import Clock
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient
from nodelib.kube.paths import is_name
from nodelib.kube.reflector import Reflector
from nodelib.tasks import Work

_SYNC_TIMEOUT = 5.0  # seconds to wait for a first list
_BUNDLES = "/apis/certificates.k8s.io/v1/clustertrustbundles"


class ObjectStore(Protocol):
    """WatchedObjects or PolledObjects: ConfigMaps and Secrets for the pods that use them."""

    def tasks(self) -> list[tuple[str, Work]]: ...

    async def get(self, user: str, key: ObjectKey) -> Json | None: ...

    def drop_user(self, user: str) -> None: ...

    async def close(self) -> None: ...


class PodObjects:
    """`notify(uid)` is called when something that the pod uses has changed, or its token must be renewed.

    `store`: where ConfigMaps and Secrets come from; None: they are watched. `most`: see NamedObjects.

    `tasks()` must be kept running by the agent's supervisor; close() ends the single-object watches.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        notify: Callable[[str], None],
        store: ObjectStore | None = None,
        most: tuple[int, int] = (MOST_OBJECTS, MOST_OBJECTS_OF_NAMESPACE),
    ) -> None:
        self._client = client
        self._clock = clock
        self._notify = notify
        self._objects = store or WatchedObjects(client, clock, notify)
        self._tokens = TokenCache(client, clock)
        self._named = NamedObjects(most)
        self._renewals = asyncio.Event()
        self._services = Reflector(
            client, "/api/v1/services", name="services", on_change=lambda _, service, __: slim(service)
        )
        self._bundles = Reflector(
            client, _BUNDLES, name="clustertrustbundles", on_change=lambda *_: self._bundles_changed()
        )
        self._bundle_users: set[str] = set()
        self._bundles_needed = asyncio.Event()

    def tasks(self) -> list[tuple[str, Work]]:
        """(name, work) of the long-lived tasks."""
        return [
            ("services", self._services.run),
            ("trust bundles", self._run_bundles),
            ("token renewal", self._run_renewals),
            *self._objects.tasks(),
        ]

    async def close(self) -> None:
        await self._objects.close()

    async def object(self, pod: Pod, ref: ObjectRef) -> Json | None:
        """A ConfigMap or Secret, followed from now on; None when it does not exist. Raises Temporary, Permanent for one
        too many.

        Of the name the API server knows only that there is one: anything may be in it.
        """
        if pod.source != "api":
            raise Temporary(
                f"a static pod cannot use {ref.kind} {ref.name}",
                obj=f"pod {pod.full_name}",
                action="Use files of the node instead (hostPath), or make it an ordinary pod.",
                retry_after=3600,
            )
        if not is_name(ref.name):
            return None
        self._named.note(pod, ref)
        return await self._objects.get(pod.uid, ObjectKey(ref.kind, pod.namespace, ref.name))

    async def secret(self, pod: Pod, name: str) -> Json | None:
        """object() of a Secret by its name."""
        return await self.object(pod, ObjectRef(SECRET, name))

    async def token(self, pod: Pod, request: TokenRequest) -> str:
        """A service account token, renewed from now on. Raises Temporary, Permanent for one too many."""
        self._named.note_token(pod, request)
        text = await self._tokens.get(pod, request)
        self._renewals.set()
        return text

    async def trust_bundles(self, pod: Pod) -> Sequence[Json]:
        """All ClusterTrustBundles; the pod is notified of changes from now on. Raises Temporary."""
        self._bundle_users.add(pod.uid)
        self._bundles_needed.set()
        await self._wait_synced(self._bundles)
        return list(self._bundles.store.values())

    async def claim(self, pod: Pod, name: str) -> FoundClaim | None:
        """The claim with its PersistentVolume; None if there is no such claim. Raises Temporary."""
        if not is_name(name):
            return None
        claim = await self._claim_object(pod, name, f"/api/v1/namespaces/{pod.namespace}/persistentvolumeclaims/{name}")
        volume = (claim.get("spec") or {}).get("volumeName") if claim is not None else ""
        if claim is None or not volume:
            return None if claim is None else FoundClaim(claim)
        return FoundClaim(claim, await self._claim_object(pod, name, f"/api/v1/persistentvolumes/{volume}"))

    async def _claim_object(self, pod: Pod, name: str, path: str) -> Json | None:
        try:
            found = await self._client.get(path)
            return found if (found.get("metadata") or {}).get("name") else None
        except ApiError as error:
            if error.is_not_found:
                return None
            raise Temporary(
                error.message, obj=f"claim {pod.namespace}/{name}", step="read", action="The agent tries again."
            ) from error

    async def services(self) -> Sequence[Json]:
        """All Services. Raises Temporary until they have been read once."""
        await self._wait_synced(self._services)
        return list(self._services.store.values())

    def drop_pod(self, uid: str) -> None:
        """Stop watching objects and renewing tokens for this pod."""
        self._objects.drop_user(uid)
        self._tokens.drop_pod(uid)
        self._named.drop_pod(uid)
        self._bundle_users.discard(uid)

    def _bundles_changed(self) -> None:
        for uid in sorted(self._bundle_users):
            self._notify(uid)

    async def _run_bundles(self) -> None:
        await self._bundles_needed.wait()
        await self._bundles.run()

    async def _run_renewals(self) -> None:
        while True:
            self._renewals.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(self._tokens.next_due(), 0.2)):
                    await self._renewals.wait()
            for uid in sorted(self._tokens.due()):
                self._notify(uid)
            if self._tokens.due():
                # Refreshing the volumes renews the token: give it time before notifying again.
                await self._clock.sleep(1)

    async def _wait_synced(self, reflector: Reflector) -> None:
        if reflector.synced.is_set():
            return
        try:
            async with asyncio.timeout(_SYNC_TIMEOUT):
                await reflector.synced.wait()
        except TimeoutError:
            raise Temporary(
                reflector.last_error or "not read yet",
                obj=reflector.name,
                step="first list",
                action="The agent tries again as soon as the API server answers.",
                retry_after=1,
            ) from None
