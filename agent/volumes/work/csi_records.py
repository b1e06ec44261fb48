"""What the vol_data.json files of all volumes say: which are published for pods, and which are staged.

There is a file for each volume of each pod, thousands where somebody has thousands of claims, and when his pods end
together all of them ask. So there is one look at a time, for all who asked before it began, and a few of a namespace
are written at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from agent.common.model.pods import Pod
from agent.volumes.model.csi import Published, Staged, VolumeKey
from agent.volumes.ports import CsiDisk
from nodelib.key_locks import KeyLocks
from nodelib.threads import alone

_WRITES_AT_ONCE = 4  # records of a namespace: each waits for the disk, and somebody may have thousands of them


@dataclass(frozen=True, slots=True)
class Records:
    """`published` by UID of the pod; the rest by volume: `targets`, where it is published, and `staged`."""

    published: Mapping[str, Sequence[Published]]
    targets: Mapping[VolumeKey, Collection[str]]
    staged: Mapping[VolumeKey, Sequence[Staged]]


class CsiRecords:
    """The records on a disk."""

    def __init__(self, disk: CsiDisk) -> None:
        self._disk = disk
        self._current: asyncio.Task[Records] | None = None
        self._next: asyncio.Task[Records] | None = None
        self._turns = KeyLocks[tuple[str, int]]()  # to write: by namespace and place, so that one folder has one place
        self._writes: dict[str, set[asyncio.Task[None]]] = {}  # by UID

    async def look(self) -> Records:
        """As they are now or a moment later, not as anybody saw them before. Raises OSError."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._current), name="records of volumes")
            self._next.add_done_callback(_looked)
        return await asyncio.shield(self._next)

    async def save(self, pod: Pod, folder: str, record: Mapping[str, str]) -> None:
        """Write the record of a volume. Whoever is cancelled does not take it along, whose thread goes on. Raises
        OSError."""
        write = asyncio.create_task(self._save(pod.namespace, folder, record))
        writes = self._writes.setdefault(pod.uid, set())
        writes.add(write)
        write.add_done_callback(writes.discard)
        await asyncio.shield(write)

    async def written(self, uid: str) -> None:
        """Wait for the writes of a pod that ends."""
        if writes := self._writes.pop(uid, None):
            await asyncio.wait(writes)

    async def _save(self, namespace: str, folder: str, record: Mapping[str, str]) -> None:
        async with self._turns.of((namespace, hash(folder) % _WRITES_AT_ONCE)):
            await alone(self._disk.save, folder, record)

    async def _after(self, before: asyncio.Task[Records] | None) -> Records:
        if before is not None:
            await asyncio.wait({before})
        self._current, self._next = self._next, None
        return await alone(self._read)

    def _read(self) -> Records:
        published = self._disk.all_published()
        targets: dict[VolumeKey, set[str]] = {}
        for one in chain.from_iterable(published.values()):
            targets.setdefault(one.key, set()).add(one.target)
        staged: dict[VolumeKey, list[Staged]] = {}
        for found in self._disk.all_staged():
            staged.setdefault(found.key, []).append(found)
        return Records(published, targets, staged)


def _looked(task: asyncio.Task[Records]) -> None:
    if not task.cancelled():
        task.exception()  # or asyncio reports that nobody asked for it
