"""Records of volumes and snapshots, as text."""

from __future__ import annotations

from csi.model import Image, Mode
from nodelib.json_values import compact, decode

MOST = 16 << 10
"""Bytes of a record."""
_VERSION = 1


def text(image: Image) -> str:
    return compact(
        {
            "version": _VERSION,
            "id": image.id,
            "name": image.name,
            "size": image.size,
            "mode": image.mode.value,
            "fsType": image.fs_type,
            "source": image.source,
            "created": image.created,
        }
    )


def read(content: bytes, image_id: str) -> Image:
    """Raises ValueError for a record that is damaged, of another version, or of something else."""
    found = decode(content)
    if not isinstance(found, dict) or found.get("version") != _VERSION or found.get("id") != image_id:
        raise ValueError(f"no record of {image_id}, version {_VERSION}")
    size, created = found.get("size"), found.get("created")
    texts = [found.get(key) for key in ("name", "mode", "fsType", "source")]
    if not (isinstance(size, int) and size > 0 and isinstance(created, int)):
        raise ValueError("size or time are not numbers")
    if not all(isinstance(one, str) for one in texts):
        raise ValueError("a text is missing")
    name, mode, fs_type, source = map(str, texts)
    return Image(image_id, name, size, Mode(mode), fs_type, source, created)
