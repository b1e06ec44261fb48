"""Run as a program, with the name of a scene: a process of a user who has no inotify instance left.

The user is made up for this one process, because instances are counted by user: nobody else goes without.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  (asyncio imports it late, when this user may not read it any more)
import ctypes
import logging
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from agent.build.server import server_edges
from agent.common.edge import inotify
from agent.common.edge.inotify import Inotify
from agent.node.edge.lock_file import LockFile
from agent.plugins.edge.registration import PluginSockets
from agent.static.edge.folder_watch import FolderWatch
from nodelib.clock import SystemClock
from nodelib.errors import Temporary
from tests.waiting import until

_LIMIT = 30.0  # seconds, for each condition


class Records(logging.Handler):
    """The messages that were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def kernel_instances() -> int:
    names = [f"/proc/self/fd/{one}" for one in os.listdir("/proc/self/fd")]
    return sum(os.readlink(one) == "anon_inode:inotify" for one in names if os.path.islink(one))


async def changes(folder: Path, taken: list[int], log: Records) -> None:
    """Everything that a watch reports, found by looking; and by inotify again once there is an instance."""
    one = Inotify("tests")
    sub = folder / "sub"
    sub.mkdir()
    with one.watch(str(folder), keeps_names=True) as watch, one.watch(str(sub)) as other:
        await watch.wait(_LIMIT)  # what was there already
        (folder / "new").write_text("x")
        await asyncio.wait_for(watch.changed(), _LIMIT)
        (folder / "new").write_text("longer")
        await asyncio.wait_for(watch.changed(), _LIMIT)
        (folder / "new").unlink()
        await until(lambda: "new" in watch.take_deleted(), _LIMIT)
        sub.rmdir()
        await until(lambda: other.ended, _LIMIT)
        assert len(log.messages) == 1 and "sysctl -w fs.inotify.max_user_instances=" in log.messages[0], log.messages
        release(taken)
        await until(lambda: kernel_instances() == 1, _LIMIT)
        await until(lambda: log.messages[1:] == ["inotify reports changes of tests again"], _LIMIT)
        await watch.wait(_LIMIT)
        (folder / "newer").write_text("x")
        assert await watch.wait(_LIMIT), "inotify would say that the writer has closed it"
    one.close()


async def missing_directory(folder: Path, taken: list[int], log: Records) -> None:
    one = Inotify("tests")
    (folder / "file").touch()
    for name in ("none", "file"):
        try:
            one.watch(str(folder / name))
        except Temporary as error:
            assert name in str(error)
        else:
            raise AssertionError(f"{name} is watched")
    one.close()


async def agent_parts(folder: Path, taken: list[int], log: Records) -> None:
    """Each part of the agent that uses inotify is made, as at its start, and sees what is new."""
    edges = server_edges()
    sockets, manifests = PluginSockets(str(folder / "plugins")), folder / "manifests"
    assert await sockets.scan() == frozenset()
    waiting = asyncio.create_task(sockets.changed())
    await asyncio.wait({waiting}, timeout=0.1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "plugins" / "p.sock"))

        async def found() -> bool:
            await asyncio.wait_for(sockets.changed(), _LIMIT)
            return len(await sockets.scan()) == 1

        await until(found, _LIMIT)
    waiting.cancel()
    sockets.close()

    manifests.mkdir()
    watching = FolderWatch(lambda: str(manifests))
    watching.renew()
    assert watching.last_error == ""
    await watching.wait(_LIMIT)
    (manifests / "pod.yaml").write_text("{}")
    began = asyncio.get_running_loop().time()
    await watching.wait(2 * _LIMIT)
    assert asyncio.get_running_loop().time() - began < _LIMIT
    await watching.close()

    (folder / "0.log").write_text("one\n")
    running = True

    async def is_running(sure: bool) -> bool:
        return running

    lines = edges.logs.follow(str(folder / "0.log"), None, is_running)
    assert await anext(lines) == b"one\n"
    with (folder / "0.log").open("a") as more:
        more.write("two\n")
    assert await asyncio.wait_for(anext(lines), _LIMIT) == b"two\n"
    running = False
    assert [one async for one in lines] == []
    edges.logs.close()
    assert kernel_instances() == len(taken)


async def lock(folder: Path, taken: list[int], log: Records) -> None:
    """--exit-on-lock-contention: a second kubelet keeps the file open while it waits."""
    path = str(folder / "lock")
    file = LockFile(path)
    await file.acquire(SystemClock())
    contention = asyncio.create_task(file.wait_for_contention())
    done, _ = await asyncio.wait({contention}, timeout=0.5)
    assert not done
    other = subprocess.Popen(["/bin/sh", "-c", 'exec 9<>"$0"; read -r _', path], stdin=subprocess.PIPE)
    try:
        await asyncio.wait_for(contention, _LIMIT)
    finally:
        other.kill()
        other.communicate()
    await file.close()


def take_all() -> list[int]:
    libc, taken = ctypes.CDLL(None), list[int]()
    while (descriptor := libc.inotify_init1(os.O_CLOEXEC)) >= 0:
        taken.append(descriptor)
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    assert len(taken) <= limit < resource.getrlimit(resource.RLIMIT_NOFILE)[0], "descriptors were used up first"
    return taken


def release(taken: list[int]) -> None:
    while taken:
        os.close(taken.pop())


SCENES: dict[str, Callable[[Path, list[int], Records], Awaitable[None]]] = {
    one.__name__: one for one in (changes, missing_directory, agent_parts, lock)
}


async def _play(name: str, folder: Path) -> None:
    log = Records()
    logging.getLogger("agent.common.edge.inotify").addHandler(log)
    logging.getLogger("agent.common.edge.inotify").setLevel("INFO")
    inotify._LOOK_INTERVAL, inotify._RETRY_INTERVAL = 0.05, 0.2
    taken = take_all()
    await SCENES[name](folder, taken, log)


def main(name: str) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            if os.geteuid() == 0:
                user = 2_000_000 + os.getpid()
                os.chown(folder, user, user)
                os.setgid(user)
                os.setuid(user)
            os.chdir(folder)
            asyncio.run(_play(name, Path(folder)))
            os._exit(0)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main(sys.argv[1])
