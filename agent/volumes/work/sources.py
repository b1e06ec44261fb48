"""Fetch what a pod's volumes are made from: objects, tokens, claims, trust anchors, certificates."""

from __future__ import annotations

import asyncio

from agent.common.model.pods import Pod
from agent.common.work.namespace_threads import NamespaceThreads
from agent.volumes.model.sources import (
    CertificateProjection,
    Credential,
    ObjectRef,
    SourceRefs,
    TrustBundleProjection,
    VolumeSources,
)
from agent.volumes.plan import sizes, trust_bundles, volumes
from agent.volumes.ports import PodCertificates, VolumeObjects
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.tasks import all_of, in_order


class SourceReader:
    """Reads VolumeSources; what it has read stays watched or renewed until drop_pod()."""

    def __init__(self, objects: VolumeObjects, certificates: PodCertificates) -> None:
        self._objects, self._certificates = objects, certificates
        self._threads = NamespaceThreads()

    async def read(self, pod: Pod) -> VolumeSources:
        """Everything that the pod's volumes are made from, fetched at once. Raises Invalid when that is too much."""
        refs = volumes.source_refs(pod)
        sizes.check_references(pod, refs)
        tokens, claims, certificates = list(refs.tokens), list(refs.claims), list(refs.certificates)
        # None of them goes on when one fails: what came after drop_pod() would be watched and renewed for ever.
        parts = (
            objects := asyncio.ensure_future(self._read_objects(pod, refs)),
            texts := asyncio.ensure_future(in_order(*(self._objects.token(pod, request) for request in tokens))),
            bound := asyncio.ensure_future(in_order(*(self._objects.claim(pod, name) for name in claims))),
            anchors := asyncio.ensure_future(self._read_anchors(pod, refs.bundles)),
            credentials := asyncio.ensure_future(in_order(*(self._read_certificate(pod, one) for one in certificates))),
        )
        await all_of(parts)
        return VolumeSources(
            objects=objects.result(),
            tokens=dict(zip(tokens, texts.result(), strict=True)),
            bundles=anchors.result(),
            claims={name: volume for name, volume in zip(claims, bound.result(), strict=True) if volume is not None},
            certificates=dict(zip(certificates, credentials.result(), strict=True)),
        )

    async def read_objects(self, pod: Pod, refs: SourceRefs) -> dict[ObjectRef, Json | None]:
        """The ConfigMaps and Secrets of `refs`; None for one that does not exist. Raises Invalid for too many."""
        sizes.check_references(pod, refs)
        return await self._read_objects(pod, refs)

    async def _read_objects(self, pod: Pod, refs: SourceRefs) -> dict[ObjectRef, Json | None]:
        wanted = list(refs.objects)
        found = await in_order(*(self._objects.object(pod, ref) for ref in wanted))
        return dict(zip(wanted, found, strict=True))

    def drop_pod(self, uid: str) -> None:
        """Stop watching and renewing for this pod."""
        self._objects.drop_pod(uid)
        self._certificates.drop_pod(uid)

    async def _read_certificate(self, pod: Pod, source: CertificateProjection) -> Credential | NodewrightError:
        # A signer may never answer: the pod's other volumes must not wait for it.
        try:
            return await self._certificates.get(pod, source)
        except NodewrightError as error:
            return error

    async def _read_anchors(
        self, pod: Pod, wanted: frozenset[TrustBundleProjection]
    ) -> dict[TrustBundleProjection, bytes | None]:
        if not wanted:
            return {}
        bundles = await self._objects.trust_bundles(pod)
        return await self._threads.run(pod.namespace, trust_bundles.anchors, wanted, bundles)
