"""The node's CNI server, which the plugin processes that containerd starts call over a unix socket.

The shim sends its CNI_* variables and configuration and passes the open network namespace; the answer is one byte of
exit status ("0" or "1") and the plugin's standard output. The work is done in a few threads: netlink blocks while the
kernel's single RTNL lock is held, so more threads would only wait. Two calls for the same container and interface run
one after the other. A client that has given up is not served: by then it has done the work itself.
"""

from __future__ import annotations

import array
import asyncio
import logging
import os
import select
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from cni import dispatch
from cni.dispatch import Answer, Call
from cni.edge.policy import protect
from cni.operations import Operations
from cni.spec.configuration import NetConf
from cni.spec.errors import IO_FAILURE, NOT_AVAILABLE, TRY_AGAIN_LATER, CNIError
from nodelib.errors import NodewrightError, Permanent
from nodelib.key_locks import KeyLocks

log = logging.getLogger(__name__)

T = TypeVar("T")
OnCall = Callable[[str, str, float, str], None]  # pod UID, command, seconds, error or ""
SpanOf = Callable[[str], str]  # pod UID: `traceparent` of W3C Trace Context, or ""

_THREADS = 4
_BACKLOG = 512
_ACCEPT_PAUSE = 0.1  # seconds
_LARGEST = 16 << 20
_REQUEST_SECONDS = 10.0
_ANSWER_SECONDS = 10.0  # for a client to read its answer
_CHUNK = 1 << 16


class CniServer:
    """`sync_ports` brings the store's host ports into the packet filter; `waiting` says why ADD cannot be served.

    `adopt` corrects a configuration from the runtime with what the node knows. `on_call` is called after each call for
    a pod with its UID, the command, the seconds that it took, and its error or "". `span_of` names the span that a call
    for a pod is part of.
    """

    def __init__(
        self,
        path: str,
        operations: Operations,
        *,
        sync_ports: Callable[[], Awaitable[None]],
        waiting: Callable[[], Awaitable[str]],
        adopt: Callable[[NetConf], NetConf] = lambda conf: conf,
        on_call: OnCall | None = None,
        span_of: SpanOf = lambda uid: "",
    ) -> None:
        self._path = path
        self._operations = operations
        self._sync_ports = sync_ports
        self._waiting = waiting
        self._adopt, self._on_call, self._span_of = adopt, on_call, span_of
        self._listener: socket.socket | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="cni")
        self._clients: set[asyncio.Task[None]] = set()
        self._turns = KeyLocks[Any]()  # one call at a time per container and interface; GC waits only for other GCs

    @property
    def listening(self) -> bool:
        return self._listener is not None

    def listen(self) -> None:
        """Bind the socket with mode 0600. Raises Permanent when another live server has it."""
        if self._listener is not None:
            return
        os.makedirs(os.path.dirname(self._path), mode=0o755, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            _take_over(listener, self._path)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise Permanent(
                error.strerror or str(error),
                obj=self._path,
                step="listen",
                action="Check that folder, and which process has the socket.",
            ) from error
        self._listener = listener

    async def serve(self) -> None:
        """Until cancelled or closed."""
        self.listen()
        loop = asyncio.get_running_loop()
        while (listener := self._listener) is not None:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:  # too many open files, or a client that gave up
                log.warning("%s: accept: %s; next try in %g s", self._path, error, _ACCEPT_PAUSE)
                await asyncio.sleep(_ACCEPT_PAUSE)
                continue
            task = asyncio.create_task(self._client(connection), name="cni/client")
            self._clients.add(task)
            task.add_done_callback(self._clients.discard)

    async def close(self) -> None:
        """Stop accepting, finish the running calls, remove the socket."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # Unlinked first: from here on a shim does the work itself instead of waiting for us.
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            asyncio.get_running_loop().remove_reader(listener.fileno())
            listener.close()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._threads.shutdown(wait=True)

    async def answer(self, env: dict[str, str], stdin: bytes, netns: int | None, alive: Callable[[], bool]) -> Answer:
        """Carry out one call. Never raises: an error becomes the answer."""
        try:
            call = dispatch.read(env, stdin)
            if call.conf is not None:
                call = replace(call, conf=self._adopt(call.conf))
            if call.args.command == "STATUS":
                return await self._status()
            key = (call.conf.name, call.args.key) if call.conf else None
            async with self._turns.of(key):
                if not alive():
                    raise CNIError(TRY_AGAIN_LATER, "the caller is gone", obj=str(call.args.key))
                return await self._perform(call, netns)
        except Exception as error:
            return dispatch.refusal(error, stdin)

    async def _status(self) -> Answer:
        if reason := await self._waiting():
            raise CNIError(NOT_AVAILABLE, reason, details="Search the node's log for 'pod network'.")
        return Answer()

    async def _perform(self, call: Call, netns: int | None) -> Answer:
        done = await self._in_thread(dispatch.perform, call, self._operations, netns)
        step = "network policies"
        try:
            # Before its host ports lead anybody to it.
            if done.added is not None and call.conf is not None:
                span = self._span_of(call.args.extra.get("K8S_POD_UID", ""))
                await protect(call.conf.policy_socket, call.args, done.added, span)
            step = "hostPort rules"
            if done.ports_changed:
                await self._sync_ports()
        except NodewrightError as error:
            if call.args.command == "ADD" and call.conf is not None:
                await self._in_thread(self._operations.delete, call.conf, call.args.key)
                if done.ports_changed:  # they may have been written with those of another pod
                    with suppress(NodewrightError):  # the next sync tries again
                        await self._sync_ports()
            raise CNIError(
                TRY_AGAIN_LATER, error.message, obj=str(call.args.key), step=step, details=error.action
            ) from error
        return done.answer

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    async def _client(self, connection: socket.socket) -> None:
        descriptors: list[int] = []
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                request = await _receive(connection, descriptors)
            env, stdin = _split(request)
            netns = descriptors[0] if descriptors else None
            began = time.monotonic()
            answer = await self.answer(env, stdin, netns, lambda: _connected(connection))
            _log(env, answer)
            if self._on_call is not None and (uid := _pod(env, "UID")):
                self._on_call(uid, env.get("CNI_COMMAND", ""), time.monotonic() - began, str(answer.failed or ""))
            async with asyncio.timeout(_ANSWER_SECONDS):
                await asyncio.get_running_loop().sock_sendall(connection, str(answer.status).encode() + answer.body)
        except TimeoutError:
            log.warning("a CNI client sent no complete request, or read no answer, within %g s", _REQUEST_SECONDS)
        except (OSError, CNIError) as error:
            log.warning("lost a CNI client: %s", error)
        finally:
            connection.close()
            for descriptor in descriptors:
                os.close(descriptor)


def _take_over(listener: socket.socket, path: str) -> None:
    """Bind `path`. The socket of a killed server is replaced, one that answers never is."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        probe.settimeout(1)
        probe.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        pass
    else:
        raise OSError(0, "another CNI server is listening there")
    finally:
        probe.close()
    # Bound under another name and renamed, so that the socket never has a wider mode.
    draft = f"{path}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(draft)
    listener.bind(draft)
    os.chmod(draft, 0o600)
    os.rename(draft, path)


async def _receive(connection: socket.socket, descriptors: list[int]) -> bytes:
    """Read until the client's end of file. Descriptors that it passes are appended to `descriptors`."""
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    readable = asyncio.Event()
    loop.add_reader(connection.fileno(), readable.set)
    data = bytearray()
    try:
        while True:
            try:
                chunk, ancillary, _, _ = connection.recvmsg(_CHUNK, socket.CMSG_SPACE(4 * 4), socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                readable.clear()
                await readable.wait()
                continue
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    numbers = array.array("i")
                    numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
                    descriptors.extend(numbers)
            if not chunk:
                return bytes(data)
            data += chunk
            if len(data) > _LARGEST:
                raise CNIError(IO_FAILURE, f"a request of more than {_LARGEST} bytes")
    finally:
        loop.remove_reader(connection.fileno())


def _split(request: bytes) -> tuple[dict[str, str], bytes]:
    """Split a request: KEY=VALUE strings, each ended by a zero byte, another zero byte, then the configuration."""
    head, separator, stdin = request.partition(b"\0\0")
    if not separator:
        raise CNIError(IO_FAILURE, "this request does not come from the shim")
    pairs = (item.partition(b"=") for item in head.split(b"\0"))
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}, stdin


def _connected(connection: socket.socket) -> bool:
    """Whether the client still waits. It has shut down its sending side, so only POLLHUP shows that it is gone."""
    poll = select.poll()
    poll.register(connection, 0)
    return not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


def _pod(env: dict[str, str], what: str) -> str:
    """The pod's NAME or UID from CNI_ARGS, "" if the runtime does not give it."""
    pairs = (part.partition("=") for part in env.get("CNI_ARGS", "").split(";"))
    return next((value for key, _, value in pairs if key == f"K8S_POD_{what}"), "")


def _log(env: dict[str, str], answer: Answer) -> None:
    who = f"{env.get('CNI_COMMAND', '?')} {env.get('CNI_CONTAINERID', '')[:13]} {_pod(env, 'NAME')}".strip()
    if answer.failed:
        log.warning("%s: %s", who, answer.failed)
    else:
        log.info("%s", who)
