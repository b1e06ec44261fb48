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
        objects, texts, bound, anchors, credentials = await asyncio.gather(
            self._read_objects(pod, refs),
            asyncio.gather(*(self._objects.token(pod, request) for request in tokens)),
            asyncio.gather(*(self._objects.claim(pod, name) for name in claims)),
            self._read_anchors(pod, refs.bundles),
            asyncio.gather(*(self._read_certificate(pod, source) for source in certificates)),
        )
        return VolumeSources(
            objects=objects,
            tokens=dict(zip(tokens, texts, strict=True)),
            bundles=anchors,
            claims={name: volume for name, volume in zip(claims, bound, strict=True) if volume is not None},
            certificates=dict(zip(certificates, credentials, strict=True)),
        )

    async def read_objects(self, pod: Pod, refs: SourceRefs) -> dict[ObjectRef, Json | None]:
        """The ConfigMaps and Secrets of `refs`; None for one that does not exist. Raises Invalid for too many."""
        sizes.check_references(pod, refs)
        return await self._read_objects(pod, refs)

    async def _read_objects(self, pod: Pod, refs: SourceRefs) -> dict[ObjectRef, Json | None]:
        wanted = list(refs.objects)
        found = await asyncio.gather(*(self._objects.object(pod, ref) for ref in wanted))
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
