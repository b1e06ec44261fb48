"""What the API has for a pod's volumes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agent.common.model.pods import Json, Pod
from agent.volumes.model.sources import CertificateNeed, Credential, ObjectRef, TrustNeed, VolumeSources
from agent.volumes.plan import trust, volumes
from agent.volumes.work.world import Certificates, Objects
from nodelib.errors import NodewrightError, Temporary


class Gatherer:
    """Asks for what the plan of volumes needs; what it has asked for stays watched until forget()."""

    def __init__(self, objects: Objects, certificates: Certificates) -> None:
        self._objects, self._certificates = objects, certificates

    async def objects_of(self, pod: Pod, wanted: volumes.Needs) -> dict[ObjectRef, Json | None]:
        """The objects that its volumes name; None: not there."""
        refs = list(wanted.objects)
        found = await asyncio.gather(*(self._objects.object(pod, ref) for ref in refs))
        return dict(zip(refs, found, strict=True))

    async def everything(self, pod: Pod) -> VolumeSources:
        """All that its volumes are made from, fetched at once."""
        wanted = volumes.needs(pod)
        tokens, claims = list(wanted.tokens), list(wanted.claims)
        certificates = list(wanted.certificates)
        found, texts, bound, bundles, credentials = await asyncio.gather(
            self.objects_of(pod, wanted),
            asyncio.gather(*(self._objects.token(pod, need) for need in tokens)),
            asyncio.gather(*(self._objects.claim(pod, name) for name in claims)),
            self._trust(pod, wanted.bundles),
            asyncio.gather(*(self._certificate(pod, need) for need in certificates)),
        )
        return VolumeSources(
            objects=found,
            tokens=dict(zip(tokens, texts, strict=True)),
            bundles=bundles,
            claims={name: volume for name, volume in zip(claims, bound, strict=True) if volume is not None},
            certificates=dict(zip(certificates, credentials, strict=True)),
        )

    async def services(self, pod: Pod) -> Sequence[Json]:
        """All Services. Raises Temporary until they have been read once, but for a static pod."""
        if pod.source != "api":
            try:
                return await self._objects.services()
            except Temporary:
                return ()  # a static pod must start without an API server
        return await self._objects.services()

    def forget(self, uid: str) -> None:
        """Nothing is watched or renewed for this pod any more."""
        self._objects.forget(uid)
        self._certificates.forget(uid)

    async def _certificate(self, pod: Pod, need: CertificateNeed) -> Credential | NodewrightError:
        # A signer may never answer: the pod's other volumes must not wait for it.
        try:
            return await self._certificates.get(pod, need)
        except NodewrightError as error:
            return error

    async def _trust(self, pod: Pod, wanted: frozenset[TrustNeed]) -> dict[TrustNeed, bytes | None]:
        if not wanted:
            return {}
        bundles = await self._objects.trust_bundles(pod)
        return {need: trust.anchors(need, bundles) for need in wanted}
