"""`status --watch` and `why --watch` on a real cluster: in a pipe, as JSON and on a terminal, through outages."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from controlplane.cluster.model import CONTROL_PLANE
from tests.builders.pods import manifest, sleeper
from tests.cluster.command_line import PROJECT
from tests.cluster.world import World

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]
_SECONDS = 30.0
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HOSTILE = "\x1b]0;owned\x07\x1b[2J\r"


@dataclass
class Following:
    """A command that goes on, and what it has written so far."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    text: str = ""
    errors: list[str] = field(default_factory=list)

    async def until(self, wanted: str, *, seconds: float = _SECONDS) -> str:
        """What it writes until `wanted`, a regular expression, is in it; a later call begins behind that."""
        try:
            async with asyncio.timeout(seconds):
                while not (found := re.search(wanted, self.text)):
                    chunk = await self.reader.read(1 << 16)
                    assert chunk, f"it ended, without {wanted!r}:\n{self.text}"
                    self.text += chunk.decode()
        except TimeoutError:
            pytest.fail(f"not in {seconds:g} s: {wanted!r}\n{self.text[-4000:]}")
        before, self.text = self.text[: found.end()], self.text[found.end() :]
        return before

    async def document(self) -> Any:
        """The next line, as JSON."""
        return json.loads(await self.until(r"\n"))


@contextlib.asynccontextmanager
async def following(world: World, *words: str) -> AsyncIterator[Following]:
    """The command with its output in a pipe. It is ended as by Ctrl-C, and has to end with 0."""
    process = await asyncio.create_subprocess_exec(
        *_argv(world, words), stdout=asyncio.subprocess.PIPE, limit=1 << 24, cwd="/", env=_environment()
    )
    assert process.stdout is not None
    async with _ended(process):
        yield Following(process, process.stdout)


@contextlib.asynccontextmanager
async def on_a_terminal(world: World, columns: int, rows: int, *words: str) -> AsyncIterator[Following]:
    """The same at a terminal of that size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    # Of the process that started this one, if it has set any: they would count more than the terminal's own size.
    inherited = {name: value for name, value in _environment().items() if name not in ("COLUMNS", "LINES")}
    environment = {**inherited, "TERM": "xterm-256color"}
    process = await asyncio.create_subprocess_exec(
        *_argv(world, words), stdin=theirs, stdout=theirs, stderr=theirs, cwd="/", env=environment
    )
    os.close(theirs)
    reader = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", 0))
    try:
        async with _ended(process):
            yield Following(process, reader)
    finally:
        transport.close()


@contextlib.asynccontextmanager
async def _ended(process: asyncio.subprocess.Process) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        status = await asyncio.wait_for(process.wait(), 20)
    assert status == 0


def _argv(world: World, words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "cli", *words, "--watch", "--name", world.cluster.name]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PROJECT)}


async def test_a_pod_is_followed_from_before_it_exists_to_its_end(world: World) -> None:
    async with following(world, "why", "slow", "-n", world.namespace) as seen:
        await seen.until("pod .*/slow: there is none")
        await world.create(manifest("slow", sleeper(), nodeName="node1"))
        await seen.until(r"\d\d:\d\d:\d\d\.\d{3} sandbox: \d\.\d{3} s")
        await seen.until(r"pod .*/slow: Running and ready \(on node1\)")
        await world.delete("slow", grace=0)
        await seen.until("pod .*/slow: (is gone|there is none)")


async def test_the_list_says_what_is_wrong_as_it_happens_and_that_it_is_well_again(world: World) -> None:
    missing = {"name": "keys", "secret": {"secretName": "keys"}}
    async with following(world, "why", "-n", world.namespace) as seen:
        await seen.until("not well: nothing")
        mounts = [{"name": "keys", "mountPath": "/keys"}]
        await world.create(manifest("held", sleeper(volumeMounts=mounts), volumes=[missing], nodeName="node2"))
        await seen.until(r'pod .*/held: Pending.*\n.*\n.*secret "keys" not found\n +do: Create Secret')
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"a": "hunter2"}}
        await world.create(made)
        await seen.until("pod .*/held: is well: Running and ready")
        assert "hunter2" not in seen.text


async def test_programs_get_a_document_for_each_change_and_none_in_between(world: World) -> None:
    async with following(world, "status", "-o", "json") as seen:
        first = await seen.document()
        assert first["api"] == "" and {node["state"] for node in first["nodes"]} == {"Ready"}
        every = [first]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(12):  # the proxies say anew when they synced, the nodes renew their Leases
                while True:
                    every.append(json.loads(await seen.reader.readline()))
        for before, after in itertools.pairwise(map(_lasting, every)):
            assert before != after  # pods of other tests may come and go
        await world.create(manifest("counted", sleeper()))
        names: set[str] = set()
        while "counted" not in names:
            names = {pod["name"] for pod in (await seen.document())["pods"]}


def _lasting(status: Any) -> Any:
    known = {"proxy", "proxy_synced"}
    return status | {"nodes": [{key: node[key] for key in node.keys() - known} for node in status["nodes"]]}


@pytest.mark.alone  # its limits of seconds are what it shows
async def test_a_killed_agent_is_said_within_seconds_and_that_it_runs_again(world: World) -> None:
    async with following(world, "status") as status, following(world, "why") as why:
        await status.until("daemon node2/agent: runs as process")
        await why.until("not well:")
        pid = await world.kill("node2", "agent")
        await status.until(f"daemon node2/agent: runs as process {pid}, start", seconds=5)
        await why.until("agent of node2: does not answer", seconds=10)
        await why.until("agent of node2: answers")
        await world.agent_well("node2")


@pytest.mark.alone  # its limits of seconds are what it shows
async def test_a_restart_of_the_api_server_is_said_and_survived(world: World) -> None:
    async with following(world, "status") as status, following(world, "why", "-n", world.namespace) as why:
        await status.until("API server: answers")
        await why.until("not well:")
        await world.kill(CONTROL_PLANE, "kube-apiserver")
        for one in (status, why):
            await one.until("API server: does not answer", seconds=10)
            await one.until("API server: answers", seconds=60)
        await world.run(manifest("afterwards", sleeper()))
        await world.create(manifest("crash", {**sleeper(), "command": ["sh", "-c", "exit 7"]}))
        await why.until("pod .*/crash: ")
        await status.until("pod .*/crash: ")


@pytest.mark.parametrize(("columns", "rows"), [(40, 12), (120, 40)])
async def test_a_terminal_is_redrawn_in_place_and_left_as_it_was(world: World, columns: int, rows: int) -> None:
    noisy = {
        **sleeper(),
        "command": ["sh", "-c", f"printf '{HOSTILE}' >&2; printf '{HOSTILE}' > /dev/termination-log; exit 7"],
    }
    await world.create(manifest("noisy", noisy))
    await world.until("noisy", lambda pod: "terminated" in json.dumps(pod["status"]), "ended")
    async with on_a_terminal(world, columns, rows, "why", "noisy", "-n", world.namespace) as seen:
        shown = await seen.until("exit")
        shown += await seen.until(r"\x1b\[H(?s:.*)\x1b\[H")  # once more from the top left corner
        assert "\x1b[?1049h" in shown
        frame = shown.rsplit("\x1b[H", 2)[1]
        lines = _ESCAPE.sub("", frame).split("\r\n")
        assert len(lines) <= rows and max(map(len, lines)) <= columns
        seen.process.send_signal(signal.SIGINT)
        rest = await seen.until(r"\x1b\[\?1049l(?s:.*)pod ")  # the last state stays
        for text in (shown, rest):
            assert "\x1b]" not in text and "\x07" not in text and "\x1b[2J" not in text
