"""A connection over which containers are started, and sandboxes made and ended; it outlives the agent for a while.

When a caller's connection ends, containerd cancels its calls: a container whose start is cancelled has failed
(StartError), and its process, if it exists already, is killed (internal/cri/server/container_start.go). A SIGKILL of
the agent would thus cost containers a restart. A sandbox whose making is cancelled may leave its shim behind, a process
that nothing ends any more. A descriptor that another process has too stays open: a keeper, one `sh`
that waits for the agent's end, holds this connection until the calls on it are finished.

A start waits until there is such a connection. gRPC shows no descriptors: the connection is recognised among the others
that the agent makes at the same moment by the size of its receive buffer, which no other socket has. The path of its
peer says nothing: the runtime may have made its socket in another file tree, or under another name.

An agent that stops while a start is under way leaves the connection as a killed one would: gRPC cancels its calls and
shuts the socket down when a channel is closed, so the channel gets another socket before that.

The end of a sandbox takes several steps (its network, its process, its files), and one that is cancelled begins at the
first again: under an agent that is killed every few seconds on a busy machine no pod would ever be gone. The next agent
repeats any other call. An event stream that nobody reads would block every event of the runtime (internal/eventq
publishes to one subscriber after the other).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from cri_api.v1 import api_pb2_grpc

from nodelib.backoff import Backoff
from nodelib.command import Keeper
from nodelib.errors import NodewrightError, Temporary

log = logging.getLogger(__name__)

_KEPT = 60  # seconds beyond the agent's end; a start takes seconds on a busy machine, a sandbox with its network more
_DIAL_LIMIT = 5.0  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds before another try
_PATIENCE = _DIAL_LIMIT + 1.0  # seconds that a start waits at most for a connection that outlives the agent
_BUFFER = (
    65_537  # bytes, and two more with each try; a unix socket sends from the buffer of its peer, so none is slower
)
_BUFFER_SIZES = 10_000
_OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)


class KeptStarts:
    """`stub` is a RuntimeService on the kept connection, None while there is none."""

    def __init__(
        self,
        endpoint: str,
        options: list[tuple[str, int]],
        traced: Callable[[grpc.aio.Channel], Any] = lambda channel: channel,
    ) -> None:
        self._endpoint, self._options = endpoint, [*options, _OWN_CONNECTION]
        self._traced = traced
        self._channel: grpc.aio.Channel | None = None
        self._keeper: Keeper | None = None
        self._ours = (-1, -1)  # descriptor and inode of the connection
        self._under_way: set[asyncio.Future[Any]] = set()
        self._closed, self._tries = asyncio.Event(), itertools.count()
        self._known = asyncio.Event()  # whether there is a kept connection
        self._known.set()
        self._problem = ""
        self.stub: Any = None

    async def ready(self) -> Any:
        """The stub, which is waited for while it is being made; None: there is none now, use any other."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._known.wait()
        return self.stub

    async def run(self) -> None:
        """Until cancelled: keep such a connection, and open a new one when the runtime has restarted."""
        if not self._endpoint.startswith("unix:"):
            return await asyncio.Event().wait()  # type: ignore[return-value]
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        try:
            while not self._closed.is_set():
                self._known.clear()
                if await self._keep():
                    self._known.clear()
                    pause.reset()
                else:
                    self._known.set()
                await self._drop()
                await asyncio.sleep(pause.next())
            self._known.set()
            await asyncio.Event().wait()
        finally:
            self.stub = None
            self._known.set()

    async def finish(self, call: Awaitable[Any]) -> Any:
        """The answer to a call of `stub`. When this is cancelled, the call goes on."""
        answer = asyncio.ensure_future(_answer(call))
        self._under_way.add(answer)
        answer.add_done_callback(self._under_way.discard)
        return await asyncio.shield(answer)

    async def close(self) -> None:
        """Close the connection. With calls under way, close it only in this process: the keeper still holds it."""
        self._closed.set()
        if self._under_way:
            self._leave()
        await self._drop()

    async def _keep(self) -> bool:
        """Keep one connection until it is lost; False: there was none."""
        try:
            await self._once()
            self._problem = ""
            return True
        except (OSError, TimeoutError, grpc.aio.UsageError) as error:  # no runtime there, or closed
            log.debug("no connection for starts that outlives the agent: %s", error)
        except NodewrightError as error:
            if str(error) != self._problem:
                log.warning("a container that starts while the agent is killed may be restarted: %s", error)
            self._problem = str(error)
        return False

    async def _once(self) -> None:
        """Until the connection is lost. Raises TimeoutError, OSError or CommandError when it cannot be kept."""
        size = _BUFFER + 2 * (next(self._tries) % _BUFFER_SIZES)
        options = [*self._options, ("grpc.tcp_receive_buffer_size", size)]
        self._channel = channel = grpc.aio.insecure_channel(self._endpoint, options=options)
        async with asyncio.timeout(_DIAL_LIMIT):
            while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                await channel.wait_for_state_change(state)
        ours = await asyncio.to_thread(sockets_with, size)
        if len(ours) != 1:
            raise Temporary(f"{len(ours)} such connections", obj=self._endpoint, step="find the connection for starts")
        self._ours = next(iter(ours))
        self._keeper = Keeper([self._ours[0]], _KEPT)
        self.stub = api_pb2_grpc.RuntimeServiceStub(self._traced(channel))
        self._known.set()
        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)

    def _leave(self) -> None:
        number, inode = self._ours
        try:
            still_ours = os.fstat(number).st_ino == inode
        except OSError:
            still_ours = False  # the runtime has gone, and the calls with it
        if self._keeper is None or not still_ours:
            return
        one, other = socket.socketpair()
        with one, other:
            os.dup2(one.fileno(), number, inheritable=False)
        keeper, self._keeper = self._keeper, None
        keeper.leave()

    async def _drop(self) -> None:
        self.stub = None
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close(grace=None)
        if self._keeper is not None:
            keeper, self._keeper = self._keeper, None
            await asyncio.to_thread(keeper.end)


async def _answer(call: Awaitable[Any]) -> Any:
    return await call


def sockets_with(buffer: int) -> set[tuple[int, int]]:
    """(descriptor, inode) of each unix socket of this process whose receive buffer was made that large (bytes)."""
    found = set[tuple[int, int]]()
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.stat(int(name))
            if not stat.S_ISSOCK(status.st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                # The kernel doubles what it is asked for (socket(7)).
                if one.family == socket.AF_UNIX and one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * buffer:
                    found.add((int(name), status.st_ino))
        except (OSError, ValueError):
            continue  # closed meanwhile
    return found
