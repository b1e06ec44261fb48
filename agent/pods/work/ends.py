"""Whose turn it is to end a container or a sandbox: each is some processes of the runtime, outside of the pod's cgroup.

Hundreds that end together hold up the starts of others for many seconds. A few end at a time, namespaces take turns,
and as long as a pod of another namespace is being started, fewer do. Whoever has begun holds up nobody for long: it may
take as long as its grace until it has ended.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator

from agent.common.work.gate import Gate


class Ends:
    """One for all pods of the node. `beside_starts`: the gate for what ends while others start."""

    def __init__(self, gate: Gate, beside_starts: Gate) -> None:
        self._gate, self._beside_starts = gate, beside_starts
        self._starting: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return self._gate.waiting + self._beside_starts.waiting

    @contextlib.contextmanager
    def starting(self, namespace: str) -> Iterator[None]:
        """During the block, a sandbox or a container of this namespace is made."""
        self._starting[namespace] += 1
        try:
            yield
        finally:
            self._starting -= Counter([namespace])

    def start_elsewhere(self, namespace: str) -> bool:
        """Whether a pod of another namespace is being started."""
        return any(other != namespace for other in self._starting)

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Wait until a container or a sandbox of this namespace may end."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._gate.place(group=namespace))
            if self.start_elsewhere(namespace):
                await stack.enter_async_context(self._beside_starts.place(group=namespace))
            yield
