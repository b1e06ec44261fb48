"""Small files that survive the agent and are never half written. Decides nothing."""

from __future__ import annotations

import asyncio
import os
import secrets

from nodelib import files
from nodelib.errors import Temporary

MOST = 256 << 20  # bytes


class CheckpointFiles:
    """agent.common.ports.CheckpointStore and agent.images.ports.RecordStore: files that only root can read.

    `most`: bytes of one; what is longer is neither read nor written.
    """

    def __init__(self, folder: str, most: int = MOST) -> None:
        self._folder, self._most = folder, most

    async def read(self, name: str) -> str | None:
        """None when there is no such file. Raises Temporary."""
        return await asyncio.to_thread(self._read, self._path(name))

    async def write(self, name: str, text: str) -> None:
        """Replace the file; a crash leaves the old or the new text on the disk, never half. Raises Temporary."""
        await asyncio.to_thread(self._write, self._path(name), text)

    async def set_aside(self, name: str) -> str:
        """Rename a file that cannot be understood; its new path. Raises Temporary."""
        return await asyncio.to_thread(self._set_aside, self._path(name))

    async def remove(self, name: str) -> None:
        """Idempotent. Raises Temporary."""
        await asyncio.to_thread(self._remove, self._path(name))

    async def names(self) -> list[str]:
        """The files of this folder, without those that are being written. Raises Temporary."""
        return await asyncio.to_thread(self._names)

    async def make(self) -> None:
        """Create the folder, so that others see that records are kept. Raises Temporary."""
        await asyncio.to_thread(self._make)

    def _make(self) -> None:
        try:
            os.makedirs(self._folder, mode=0o750, exist_ok=True)
        except OSError as error:
            raise _failure(self._folder, "make the folder of", error) from error

    def _set_aside(self, path: str) -> str:
        failed = OSError()
        # There may be a folder at either path, which a plugin has made, and an agent must start.
        for kept in (f"{path}.unreadable", f"{path}.unreadable.{secrets.token_hex(4)}"):
            try:
                os.replace(path, kept)
            except OSError as error:
                failed = error
            else:
                return kept
        raise _failure(path, "set aside", failed) from failed

    def _remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failure(path, "remove", error) from error

    def _names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._folder) if not name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failure(self._folder, "list", error) from error

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _read(self, path: str) -> str | None:
        try:
            if os.stat(path).st_size > self._most:
                return ""  # nobody's checkpoint
            return files.bytes_of(path, self._most, seconds=0).decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in files.NO_FILE:  # a device plugin has the folder: it is none of ours
                return ""
            raise _failure(path, "read", error) from error

    def _write(self, path: str, text: str) -> None:
        if len(text) > self._most:
            action = "Find out which plugin's answers are that long: they are in the file that is there."
            problem = f"it would have {len(text)} characters, of which at most {self._most} could be read again"
            raise Temporary(problem, obj=path, step="write checkpoint", action=action)
        try:
            os.makedirs(self._folder, mode=0o750, exist_ok=True)
            files.replace(path, text, durable=True)
        except OSError as error:
            raise _failure(path, "write", error) from error


def _failure(path: str, step: str, error: OSError) -> Temporary:
    hint = "Check that the agent is root and that the disk is neither full nor read-only; it is tried again."
    return Temporary(error.strerror or str(error), obj=path, step=f"{step} checkpoint", action=hint)
