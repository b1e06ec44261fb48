"""Requests of the controller service as values, and volumes and snapshots as answers."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from csi import names
from csi.model import TOPOLOGY, Image, Kind, Mode, VolumeRequest
from csi.plan import access, sizes
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused
from nodelib.text import one_line

_FS_TYPE = "csi.storage.k8s.io/fstype"  # upstream's provisioner makes it a part of the capability
_METADATA = "csi.storage.k8s.io/"
_NAMESPACES = ("csi.storage.k8s.io/pvc/namespace", "csi.storage.k8s.io/volumesnapshot/namespace")
_INLINE_SIZE = "size"
_MOST_ENTRIES = 1000


def read_request(request: Json) -> VolumeRequest:
    """Raises Refused."""
    name = str(request.get("name") or "")
    image_id = names.id_of(Kind.VOLUME, name)
    mode, fs_type = access.common(request.get("volume_capabilities") or ())
    required, limit = sizes.asked(request.get("capacity_range"))
    by_class = _fs_type(mode, request.get("parameters") or {})
    if request.get("mutable_parameters"):
        raise Refused("INVALID_ARGUMENT", "the driver has no parameters that can be changed")
    source, kind = _source(request.get("volume_content_source"))
    asker = namespace(request.get("parameters") or {})
    return VolumeRequest(image_id, name, required, limit, mode, fs_type or by_class, source, kind, asker)


def namespace(parameters: Mapping[str, str]) -> str:
    """Whose claim or snapshot it is, "" where the helper does not say."""
    return next((parameters[key] for key in _NAMESPACES if key in parameters), "")


def check_parameters(parameters: Mapping[str, str]) -> None:
    """Raises Refused for a parameter that would be passed over in silence."""
    for key in parameters:
        if not key.startswith(_METADATA):
            raise Refused("INVALID_ARGUMENT", f"the driver has no parameter {one_line(key, 60)!r}")


def _fs_type(mode: Mode, parameters: Mapping[str, str]) -> str:
    check_parameters(parameters)
    found = parameters.get(_FS_TYPE, "") if mode is Mode.MOUNT else ""
    if found and found not in access.FILE_SYSTEMS:
        raise Refused("INVALID_ARGUMENT", access.unknown_file_system(found))
    return found


def check_topology(requirement: Json | None, node: str) -> None:
    """Raises Refused when the volume must not be on this node."""
    allowed = (requirement or {}).get("requisite") or (requirement or {}).get("preferred") or []
    if allowed and not any(reaches(one, node) for one in allowed):
        raise Refused("RESOURCE_EXHAUSTED", f"volumes made on {node} are only on {node}")


def reaches(topology: Json, node: str) -> bool:
    """Whether this node is in the topology; one without segments is everywhere."""
    segments = topology.get("segments") or {}
    return not segments or segments.get(TOPOLOGY) == node


def problem_with(existing: Image, wanted: VolumeRequest) -> str:
    """Why an existing volume of the same name is not what is asked for, "" if it is."""
    if not sizes.fits(existing.size, wanted.required, wanted.limit):
        return f"it has {existing.size} bytes"
    if existing.mode is not wanted.mode:
        return f"it was made for {existing.mode}"
    if wanted.fs_type and existing.mode is Mode.MOUNT and existing.fs_type != wanted.fs_type:
        return f"it has {existing.fs_type}"
    if existing.source != wanted.source:
        return "its content comes from elsewhere"
    return ""


def inline_size(context: Mapping[str, str]) -> str:
    """The quantity of an inline volume, "" if nobody said one. Raises Refused for attributes that mean nothing."""
    for key in context:
        if key != _INLINE_SIZE and not key.startswith(_METADATA):
            raise Refused("INVALID_ARGUMENT", f"inline volumes have no attribute {one_line(key, 60)!r}, only size")
    return context.get(_INLINE_SIZE, "")


def volume(image: Image, node: str) -> Json:
    """As the specification has it."""
    found: Json = {
        "volume_id": image.id,
        "capacity_bytes": image.size,
        "accessible_topology": [{"segments": {TOPOLOGY: node}}],
    }
    if names.is_id(Kind.SNAPSHOT, image.source):
        found["content_source"] = {"snapshot": {"snapshot_id": names.handle(Kind.SNAPSHOT, image.source, node)}}
    elif image.source:
        found["content_source"] = {"volume": {"volume_id": image.source}}
    return found


def snapshot(image: Image, node: str) -> Json:
    """As the specification has it."""
    return {
        "snapshot_id": names.handle(Kind.SNAPSHOT, image.id, node),
        "source_volume_id": image.source,
        "size_bytes": image.size,
        "creation_time": {"seconds": image.created},
        "ready_to_use": True,
    }


def page(images: Sequence[Image], start: str, most: int) -> tuple[Sequence[Image], str]:
    """The entries from the id `start` on, and where the next page begins ("": there is none). Raises Refused."""
    if most < 0:
        raise Refused("INVALID_ARGUMENT", "max_entries is negative")
    ordered = sorted(images, key=lambda one: one.id)
    if start and not any(names.is_id(kind, start) for kind in Kind):
        raise Refused("ABORTED", "the starting token is none of ours")
    first = bisect.bisect_left([one.id for one in ordered], start)
    last = first + min(most or _MOST_ENTRIES, _MOST_ENTRIES)
    return ordered[first:last], ordered[last].id if last < len(ordered) else ""


def _source(given: Json | None) -> tuple[str, Kind]:
    if not given:
        return "", Kind.VOLUME
    if "snapshot" in given:
        kind, found = Kind.SNAPSHOT, names.id_in(str(given["snapshot"].get("snapshot_id") or ""))
    elif "volume" in given:
        kind, found = Kind.VOLUME, str(given["volume"].get("volume_id") or "")
    else:
        raise Refused("INVALID_ARGUMENT", "the content source is neither a snapshot nor a volume")
    names.given(found, f"id of the {kind.value.removesuffix('s')} that the content comes from")
    if not names.is_id(kind, found):
        raise Refused("NOT_FOUND", f"there is no {kind.value.removesuffix('s')} {one_line(found, 100)!r}")
    return found, kind
