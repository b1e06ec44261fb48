"""The files that remember pods' ranges of IDs, and `getsubids`. Decides nothing."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
from collections.abc import Mapping

from agent.common.edge.checkpoint import CheckpointFiles
from agent.common.model.pod_settings import PodPaths
from nodelib import command, files
from nodelib.command import CommandError
from nodelib.errors import Temporary
from nodelib.threads import alone

_NAME = "userns"  # upstream's, in the pod's directory
_MOST = 4096  # bytes of such a file, and of what getsubids prints
_SECONDS = 10.0  # getsubids may ask a directory service


class PodMappings:
    """See MappingFiles in ports.py."""

    def __init__(self, root_dir: str) -> None:
        self._root_dir = root_dir

    async def read(self) -> Mapping[str, str | None]:
        return await asyncio.to_thread(self._read)

    async def write(self, uid: str, text: str) -> None:
        await CheckpointFiles(PodPaths(self._root_dir, uid).pod).write(_NAME, text)

    def path(self, uid: str) -> str:
        return f"{PodPaths(self._root_dir, uid).pod}/{_NAME}"

    def _read(self) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        try:
            pods = [entry.name for entry in os.scandir(f"{self._root_dir}/pods") if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Temporary(
                error.strerror or str(error),
                obj=f"{self._root_dir}/pods",
                step="read which IDs pods have",
                action="Check that the agent is root and that the disk can be read.",
            ) from error
        for uid in pods:
            try:
                found[uid] = _text(self.path(uid))
            except FileNotFoundError:
                continue
            except OSError:
                found[uid] = None
        return found


class GetSubIds:
    """See SubordinateIds in ports.py."""

    async def of(self, user: str) -> tuple[str, str] | None:
        program = shutil.which("getsubids")
        try:
            async with asyncio.timeout(_SECONDS):
                if program is None or not await alone(_exists, user):
                    return None
            users, groups = await _printed(program, user), await _printed(program, "-g", user)
        except (OSError, CommandError) as error:
            raise Temporary(
                f"getsubids does not say which IDs it has: {error}",
                obj=f"user {user}",
                step="find IDs for the users of pods",
                action=f"Run `getsubids {user}` on the node, and give it lines in /etc/subuid and /etc/subgid.",
            ) from error
        return users, groups


async def _printed(program: str, *words: str) -> str:
    return (await command.run([program, *words], timeout=_SECONDS, most=_MOST)).text


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _text(path: str) -> str | None:
    """None: it is longer than any that a kubelet writes. Raises OSError."""
    handle = files.readable(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
    with os.fdopen(handle, "rb") as file:
        data = file.read(_MOST + 1)
    return data.decode(errors="replace") if len(data) <= _MOST else None
