"""OCI images as values: entries make a layer, layers and a config make an image.

Follows the OCI image specification 1.1 (image-layout.md, manifest.md, config.md, layer.md).
Everything here is a pure function of its input (no clock, no user names of the host, keys and entries sorted), so the
same inputs give the same digests on every machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

EPOCH = 1_767_225_600  # 2026-01-01T00:00:00Z, the modification time of every file
CREATED = "2026-01-01T00:00:00Z"

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


class EntryKind(StrEnum):
    """What an entry of a layer is."""

    FILE = "file"
    DIR = "dir"
    SYMLINK = "symlink"
    HARDLINK = "hardlink"


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a layer; `content` is bytes or the host file that contains them; `target` is for links."""

    path: str
    kind: EntryKind = EntryKind.FILE
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    content: bytes | Path = b""
    target: str = ""


def file(path: str, content: bytes | str | Path, mode: int = 0o644, uid: int = 0, gid: int = 0) -> Entry:
    """A regular file; `mode` may carry setuid and setgid."""
    data = content.encode() if isinstance(content, str) else content
    return Entry(_relative(path), EntryKind.FILE, mode, uid, gid, data)


def directory(path: str, mode: int = 0o755, uid: int = 0, gid: int = 0) -> Entry:
    """A directory; the runtime makes parents without an entry as 0755 root."""
    return Entry(_relative(path), EntryKind.DIR, mode, uid, gid)


def symlink(path: str, target: str) -> Entry:
    """A symbolic link with the text `target`."""
    return Entry(_relative(path), EntryKind.SYMLINK, 0o777, target=target)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Sorted; the last entry of a path wins, and hard links come after the files they refer to."""
    unique = {entry.path: entry for entry in entries}
    return sorted(unique.values(), key=lambda entry: (entry.kind is EntryKind.HARDLINK, entry.path))


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The `config` object of an image: what a container runs unless the pod says otherwise."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    user: str = ""
    env: tuple[str, ...] = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)
    workdir: str = ""
    ports: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = field(default=())
    stop_signal: str = ""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A blob by digest (`sha256:…`) and size in bytes; `diff_id` is a layer's digest before compression."""

    media_type: str
    digest: str
    size: int
    diff_id: str = ""

    def document(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, slots=True)
class Image:
    """The JSON blobs of an image, their descriptors and the image's names."""

    names: tuple[str, ...]
    config: bytes
    manifest: bytes
    index: bytes
    layers: tuple[Descriptor, ...]
    config_descriptor: Descriptor
    manifest_descriptor: Descriptor


def make_image(names: Sequence[str], run: RunConfig, layers: Sequence[Descriptor], architecture: str) -> Image:
    """Config, manifest and index of an image for linux/`architecture` (Go's name)."""
    config = _json(config_document(run, layers, architecture))
    config_descriptor = describe(CONFIG, config)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config_descriptor.document(),
            "layers": [layer.document() for layer in layers],
        }
    )
    manifest_descriptor = describe(MANIFEST, manifest)
    platform = {"architecture": architecture, "os": "linux"}
    # Also named by digest, as after a pull: the CRI makes repoDigests and the kubelet imageID of such a name.
    by_digest = {f"{name.rpartition(':')[0]}@{manifest_descriptor.digest}" for name in names}
    index = _json(
        {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [
                {
                    **manifest_descriptor.document(),
                    "platform": platform,
                    "annotations": {"io.containerd.image.name": name},
                }
                for name in (*names, *sorted(by_digest))
            ],
        }
    )
    return Image(tuple(names), config, manifest, index, tuple(layers), config_descriptor, manifest_descriptor)


def config_document(run: RunConfig, layers: Sequence[Descriptor], architecture: str) -> dict[str, Any]:
    """The image configuration (config.md); like other builders we leave out empty fields."""
    optional = {
        "Entrypoint": list(run.entrypoint),
        "Cmd": list(run.cmd),
        "User": run.user,
        "Env": list(run.env),
        "WorkingDir": run.workdir,
        "ExposedPorts": {port: {} for port in run.ports},
        "Labels": dict(run.labels),
        "StopSignal": run.stop_signal,
    }
    return {
        "created": CREATED,
        "architecture": architecture,
        "os": "linux",
        "config": {name: value for name, value in optional.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created": CREATED, "created_by": "nodewright"} for _ in layers],
    }


def describe(media_type: str, content: bytes) -> Descriptor:
    """The descriptor of a blob in memory."""
    return Descriptor(media_type, "sha256:" + hashlib.sha256(content).hexdigest(), len(content))


def _relative(path: str) -> str:
    return path.strip("/")


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
