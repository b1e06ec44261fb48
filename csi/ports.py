"""What the services ask of the world."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from csi.model import Access, Image, Kind, Space, Usage


class Disk(Protocol):
    """Volumes and snapshots of this node. Every method raises OSError or a NodewrightError."""

    async def image(self, kind: Kind, image_id: str) -> Image | None: ...

    async def images(self, kind: Kind) -> list[Image]: ...

    async def space(self) -> Space: ...

    async def make(
        self, kind: Kind, image: Image, origin: tuple[Kind, str] | None = None, *, at_once: bool = False
    ) -> None:
        """All of it or, whatever happens, nothing: with a file system of its own or the content of `origin`.

        `at_once`: `origin` is written to meanwhile, so its content has to be that of one moment.
        """

    async def remove(self, kind: Kind, image_id: str) -> None:
        """Does nothing when there is none."""

    async def users(self, image: Image) -> list[str]:
        """Paths where a volume is mounted or its device bound."""

    def at_rest(self, image: Image) -> AbstractAsyncContextManager[None]:
        """Inside, nobody writes to its mounted file system."""

    async def stage(self, image: Image, access: Access, target: str) -> None:
        """Mount it at `target`, checked and as large as its image. Does nothing when it is there."""

    async def grow_idle(self, image: Image, access: Access, staged: str) -> None:
        """Let a file system that is smaller than its image grow while only `staged` has it, mounted anew."""

    async def publish(self, image: Image, source: str, target: str, *, read_only: bool) -> None:
        """Bind what is mounted at `source`, or its device, to `target`. Does nothing when it is there."""

    async def unmount(self, target: str) -> None:
        """Does nothing when nothing is mounted there; refuses what is no loop device."""

    async def remove_target(self, target: str) -> None:
        """Remove an empty directory or file."""

    async def release(self, image: Image) -> None:
        """Detach its devices unless somebody uses them."""

    async def is_at(self, image: Image, path: str) -> bool:
        """Whether this volume is mounted, or its device bound, exactly there."""

    async def grow(self, image: Image) -> None:
        """Save the new size and let file, device and mounted file system grow to it."""

    async def usage(self, path: str) -> Usage: ...
