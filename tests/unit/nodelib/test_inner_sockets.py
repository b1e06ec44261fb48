"""Sockets of a node's file tree: a link in their place never leads out of the tree."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodelib import agent_socket
from nodelib.inner_sockets import reached


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """The root of a process with a file tree of its own, as this machine's processes see it."""
    if os.geteuid() != 0:
        pytest.skip("gives a process another root")
    root = tmp_path / "root"
    (root / "run").mkdir(parents=True)
    ready, writer = os.pipe()
    if (pid := os.fork()) == 0:
        os.chroot(root)
        os.write(writer, b"x")
        signal.pause()
        os._exit(0)
    os.read(ready, 1)
    yield Path(f"/proc/{pid}/root")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "machine.sock"))
        listener.listen()
        yield tmp_path / "machine.sock"


@pytest.mark.parametrize("depth", ["file", "folder", "dots"])
def test_no_link_leads_out(tree: Path, outside: Path, depth: str) -> None:
    wanted = tree / "run" / outside.name
    match depth:
        case "file":
            wanted.symlink_to(outside)
        case "folder":
            (tree / "run").rmdir()
            (tree / "run").symlink_to(outside.parent)
        case "dots":
            wanted.symlink_to(f"../../{outside.name}")
    assert os.path.exists(wanted), "the kernel alone would follow it"
    with pytest.raises(FileNotFoundError), reached(str(wanted)):
        pass


def test_links_within_the_tree_are_followed(tree: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(tree / "run" / "real.sock"))
        listener.listen()
        (tree / "run" / "agent.sock").symlink_to("/run/real.sock")
        with reached(str(tree / "run" / "agent.sock")) as way:
            client.connect(way)


@pytest.mark.parametrize("kind", ["file", "pipe", "folder"])
def test_what_is_no_socket_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    path.touch() if kind == "file" else os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(OSError) as caught, reached(str(path)):
        pass
    assert caught.value.errno == errno.ENOTSOCK


@pytest.mark.parametrize(
    "body", [b"[]", b"no", b'{"a": NaN}', b"[" * 100_000, b"{" + b" " * (1 << 20)], ids=lambda one: str(one[:8])
)
async def test_an_answer_that_is_none(tmp_path: Path, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_socket, "_MOST", 1 << 18)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    path = str(tmp_path / "agent.sock")
    async with await asyncio.start_unix_server(serve, path):
        with pytest.raises(ValueError):
            await agent_socket.get(path, "/why", 10)
