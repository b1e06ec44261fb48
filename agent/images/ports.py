"""The port to the runtime's content store, from which the progress of pulls is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from agent.images.model.pulls import Manifest


class ImageContent(Protocol):
    """Blobs of images in the runtime's content store (images/edge/image_content.py).

    Calls raise PluginError, with the code UNIMPLEMENTED when the runtime has no such API.
    """

    async def under_way(self) -> Mapping[str, int]:
        """Blobs that are being written: digest -> bytes so far."""
        ...

    async def manifests(self, host: str, repository: str) -> tuple[Manifest, ...]:
        """The manifests of images from this repository. `host`: without its port."""
        ...

    async def sizes(self, manifest: str) -> Mapping[str, int]:
        """Digest -> bytes of the config and all layers that the manifest names."""
        ...

    async def present(self, digests: Collection[str]) -> frozenset[str]:
        """Those of the blobs that are complete."""
        ...

    async def close(self) -> None: ...


class RecordStore(Protocol):
    """A folder of small files (common/edge/checkpoint.py). Every call raises Temporary naming the file."""

    async def read(self, name: str) -> str | None: ...

    async def write(self, name: str, text: str) -> None: ...

    async def remove(self, name: str) -> None: ...

    async def names(self) -> list[str]: ...
