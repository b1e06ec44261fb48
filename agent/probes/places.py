"""How many probes are under way at once, and whose is next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from agent.common.model.pods import Pod
from agent.common.work.gate import Gate
from agent.probes import plan
from agent.probes.model import ExecRequest, ProbeRequest

_MOST_ASKED = 64  # probes by a network at a time: each is a millisecond of the loop, and ten with redirects
_MOST_COMMANDS = 32  # commands of a namespace under way: the runtime keeps up to 36 MiB for each, as played
_MOST_DECODED = 16  # answers over HTTP/2 at a time: some milliseconds of the loop for each, as its server likes


class Places:
    """`commands`: how many commands begin at once. Each is several processes of the runtime, outside of the pod's
    cgroup, and a pod may have hundreds of containers with three commands a second: upstream begins all of them.
    `decoded`: how many answers over HTTP/2 are read at once; `asked`: how many other probes are sent at once.
    """

    def __init__(self, commands: Gate, decoded: Gate | None = None, asked: Gate | None = None) -> None:
        self._commands = commands
        self._decoded, self._asked = decoded or Gate(_MOST_DECODED), asked or Gate(_MOST_ASKED)
        self._own_commands: WeakValueDictionary[str, Gate] = WeakValueDictionary()  # by namespace

    @asynccontextmanager
    async def place(self, request: ProbeRequest, pod: Pod) -> AsyncIterator[None]:
        """The pods of a namespace take turns for its commands, and the namespaces for all else."""
        namespace = pod.namespace
        if isinstance(request, ExecRequest):
            own = self._own_commands.setdefault(namespace, Gate(_MOST_COMMANDS, longest=None))
            async with own.place(group=pod.uid), self._commands.place(group=namespace):
                yield
        else:
            async with (self._decoded if plan.is_costly(request) else self._asked).place(group=namespace):
                yield
