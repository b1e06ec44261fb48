"""What is on disk: ROOT/volumes/ID and ROOT/snapshots/ID, each with disk.img and record.json.

A folder is made under another name (.new-ID) and renamed when all of it is on disk, and renamed (.old-ID) before it is
removed: whoever is killed in between leaves no half of a volume, and recover() removes the rest. Blocking calls.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from contextlib import suppress

from csi import names, records
from csi.edge import extents, images
from csi.model import Image, Kind, Space
from nodelib import file_trees, files

log = logging.getLogger(__name__)

_IMAGE, _RECORD = "disk.img", "record.json"
_NEW, _OLD = ".new-", ".old-"


class Store:
    """Every method raises OSError. Ids must be ours (names.is_id)."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._shares = False  # whether copies have the blocks of their source

    def recover(self) -> None:
        """Make the folders, and remove what an interrupted call left."""
        for kind in Kind:
            folder = f"{self._root}/{kind}"
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chmod(self._root, 0o700)
            for name in os.listdir(folder):
                if name.startswith((_NEW, _OLD)):
                    log.info("%s/%s: an interrupted call left it; it is removed", kind, name)
                    file_trees.remove(f"{folder}/{name}")
        with suppress(OSError):  # a full disk, where nothing is copied
            self._shares = images.can_share(self._root)

    def image(self, kind: Kind, image_id: str) -> Image | None:
        """None: there is none. Raises OSError (EUCLEAN) for a record that is damaged."""
        if not names.is_id(kind, image_id):
            return None
        path = f"{self._root}/{kind}/{image_id}/{_RECORD}"
        try:
            with open(path, "rb", opener=files.no_link) as file:
                content = file.read(records.MOST + 1)
            return records.read(content, image_id)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise OSError(errno.EUCLEAN, f"its record is damaged: {error}", path) from error

    def images(self, kind: Kind) -> list[Image]:
        """All of them; those with a damaged record are left out and logged."""
        found = []
        for name in sorted(os.listdir(f"{self._root}/{kind}")):
            try:
                one = self.image(kind, name)
            except OSError as error:
                log.error("%s", error)
                continue
            if one is not None:
                found.append(one)
        return found

    def path(self, kind: Kind, image_id: str) -> str:
        """Of the image."""
        return f"{self._root}/{kind}/{image_id}/{_IMAGE}"

    def draft(self, kind: Kind, image_id: str) -> str:
        """The path of a new image that does not exist yet; what an interrupted call left of it is removed."""
        folder = f"{self._root}/{kind}/{_NEW}{image_id}"
        file_trees.remove(folder)
        os.mkdir(folder, 0o700)
        return f"{folder}/{_IMAGE}"

    def commit(self, kind: Kind, image: Image) -> None:
        """The draft is complete: from now on it is there, after a power failure too."""
        folder = f"{self._root}/{kind}"
        draft = f"{folder}/{_NEW}{image.id}"
        _sync(f"{draft}/{_IMAGE}")
        files.replace(f"{draft}/{_RECORD}", records.text(image), durable=True)
        os.rename(draft, f"{folder}/{image.id}")
        _sync(folder)

    def discard(self, kind: Kind, image_id: str) -> None:
        file_trees.remove(f"{self._root}/{kind}/{_NEW}{image_id}")

    def remove(self, kind: Kind, image_id: str) -> None:
        """Does nothing when there is none."""
        folder = f"{self._root}/{kind}"
        old = f"{folder}/{_OLD}{image_id}"
        file_trees.remove(old)
        with suppress(FileNotFoundError):
            os.rename(f"{folder}/{image_id}", old)
        file_trees.remove(old)

    def grow(self, image: Image) -> None:
        """Make the image of a volume as large as its new record says, and save that."""
        path = self.path(Kind.VOLUME, image.id)
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(handle).st_size < image.size:
                os.ftruncate(handle, image.size)
                os.fsync(handle)
        finally:
            os.close(handle)
        files.replace(f"{os.path.dirname(path)}/{_RECORD}", records.text(image), durable=True)

    def space(self) -> Space:
        found = os.statvfs(self._root)
        occupied = {}
        for kind in Kind:
            for name in os.listdir(f"{self._root}/{kind}"):
                with suppress(FileNotFoundError, NotADirectoryError):
                    path = f"{self._root}/{kind}/{name}/{_IMAGE}"
                    status = os.lstat(path)
                    if stat.S_ISREG(status.st_mode):
                        # What a volume shares with a copy it may still write anew.
                        shared = extents.shared(path) if self._shares and kind is Kind.VOLUME else 0
                        occupied[name] = status.st_blocks * 512 - shared
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, occupied)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
