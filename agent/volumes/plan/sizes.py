"""How much a pod's volumes need: what they name, and how much their files would be. Counted before anything is done.

A pod that the API server accepts can name tens of thousands of objects, each of which is read and followed; or one
object in thousands of volumes, or one key for thousands of files: those are gigabytes on the node's disk or in its
memory, written by the agent. Upstream has no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent.common.model.pods import Pod
from agent.common.plan import downward
from agent.volumes.model.sources import (
    CONFIG_MAP,
    MOST_BUNDLES,
    MOST_CERTIFICATES,
    MOST_CLAIMS,
    MOST_OBJECTS,
    MOST_TOKENS,
    SECRET,
    ObjectRef,
    SourceRefs,
    VolumeSources,
)
from agent.volumes.plan import payload
from nodelib.errors import Invalid
from nodelib.json_values import Json

_MOST = 96 * 1024 * 1024  # bytes; an object has at most 1 MiB
_FILE = 512  # bytes that each file counts for besides its content
# Bytes of the pod's own fields: each is put together anew for each file that shows it, and for each change of the pod.
_MOST_FIELDS = 8 * 1024 * 1024


def check_references(pod: Pod, refs: SourceRefs) -> None:
    """Raises Invalid when the pod's volumes name more than a node asks for."""
    for count, most, what in (
        (len(refs.objects), MOST_OBJECTS, "ConfigMaps and Secrets"),
        (len(refs.tokens), MOST_TOKENS, "tokens of service accounts"),
        (len(refs.claims), MOST_CLAIMS, "claims"),
        (len(refs.certificates), MOST_CERTIFICATES, "certificates"),
        (len(refs.bundles), MOST_BUNDLES, "ClusterTrustBundles and selectors of them"),
    ):
        if count > most:
            raise Invalid(
                f"the pod's volumes name {count} {what}, more than {most}",
                obj=f"pod {pod.full_name}",
                step="volumes",
                action="Name fewer, or put the data into fewer objects, an image or a claim.",
            )


def check(pod: Pod, sources: VolumeSources) -> None:
    """Raises Invalid when the pod's configMap, secret, downwardAPI and projected volumes would hold too much."""
    count = _Count(pod, sources)
    fewer_files = "Show labels and annotations in fewer files, or single ones of them."
    _check_total(pod, count.fields, _MOST_FIELDS, "its own fields", fewer_files)
    fewer_volumes = "Name each object in fewer volumes, or put the data into an image or a claim."
    _check_total(pod, count.sizes, _MOST, "ConfigMaps, Secrets and fields", fewer_volumes)


def _check_total(pod: Pod, sizes: Callable[[Json], Iterator[int]], most: int, what: str, action: str) -> None:
    """`sizes` of one volume, in bytes: nothing is asked for any more once there are too many."""
    total = 0
    for volume in pod.spec.get("volumes") or []:
        for size in sizes(volume):
            total += size
            if total > most:
                raise Invalid(
                    f"the pod's volumes would hold more than {most >> 20} MiB of {what}",
                    obj=f"pod {pod.full_name}",
                    step=f'volume "{volume["name"]}"',
                    action=action,
                )


class _Count:
    def __init__(self, pod: Pod, sources: VolumeSources) -> None:
        self._pod, self._sources = pod, sources
        self._objects: dict[ObjectRef, int] = {}
        self._fields: dict[str, int] = {}

    def sizes(self, volume: Json) -> Iterator[int]:
        """Of each part of a volume, in bytes."""
        if source := volume.get("secret"):
            yield from self._object(ObjectRef(SECRET, source.get("secretName", "")), source)
        yield from self._part(volume)
        for part in (volume.get("projected") or {}).get("sources") or []:
            if origin := part.get("secret"):
                yield from self._object(ObjectRef(SECRET, origin.get("name", "")), origin)
            if origin := part.get("clusterTrustBundle"):
                yield _FILE + len(self._sources.bundles.get(payload.trust_bundle_projection(origin)) or b"")
            yield from self._part(part)

    def _part(self, part: Json) -> Iterator[int]:
        if source := part.get("configMap"):
            yield from self._object(ObjectRef(CONFIG_MAP, source.get("name", "")), source)
        for size in self._fields_of(part):
            yield _FILE + size

    def fields(self, volume: Json) -> Iterator[int]:
        """Of each field of the pod that a volume shows, in bytes."""
        for part in (volume, *((volume.get("projected") or {}).get("sources") or [])):
            yield from self._fields_of(part)

    def _fields_of(self, part: Json) -> Iterator[int]:
        for item in (part.get("downwardAPI") or {}).get("items") or []:
            yield self._field((item.get("fieldRef") or {}).get("fieldPath", ""))

    def _object(self, ref: ObjectRef, source: Json) -> Iterator[int]:
        found = self._sources.objects.get(ref) or {}
        parts = [found.get("data") or {}, found.get("binaryData") or {}]
        if items := source.get("items"):
            for item in items:
                yield _FILE + sum(len(part.get(item.get("key", ""), "")) for part in parts)
            return
        if ref not in self._objects:
            self._objects[ref] = sum(_FILE + len(value) for part in parts for value in part.values())
        yield self._objects[ref]

    def _field(self, path: str) -> int:
        if path not in self._fields:
            try:
                self._fields[path] = len(downward.pod_field(self._pod, path)) if path else 0
            except Invalid:
                self._fields[path] = 0  # whoever makes the volume says what is wrong with it
        return self._fields[path]
