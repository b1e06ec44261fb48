"""Processes are run with their output, and errors name the command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import pytest
import uvloop

from nodelib import command


async def test_output_and_status() -> None:
    done = await command.run(["cat"], stdin=b"hello")
    assert (done.returncode, done.text) == (0, "hello")


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["sh", "-c", "echo why >&2; exit 3"], 3, "why"),
        (["/no/such/program"], 127, "cannot start"),
    ],
    ids=["fails", "missing"],
)
async def test_failure_names_command_status_and_output(argv: list[str], code: int, said: str) -> None:
    with pytest.raises(command.CommandError) as caught:
        await command.run(argv)
    assert caught.value.returncode == code
    assert said in str(caught.value)
    assert argv[0] in str(caught.value)


async def test_timeout_kills_the_whole_group() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    with pytest.raises(command.CommandError, match="killed"):
        await command.run([sys.executable, "-c", script], timeout=1)


async def test_a_command_that_prints_without_end_is_killed_and_not_kept() -> None:
    began = time.monotonic()
    with pytest.raises(command.CommandError, match="printed more than 100000 bytes, killed"):
        await command.run(["sh", "-c", "yes & yes >&2"], timeout=60, most=100_000)
    assert time.monotonic() - began < 30


async def test_both_outputs_and_a_long_input_at_once() -> None:
    text = b"x" * 3_000_000
    done = await command.run(["sh", "-c", "tee /dev/stderr"], stdin=text)
    assert done.stdout == done.stderr == text
    assert (await command.run(["true"], stdin=text)).returncode == 0, "a command need not read what it is given"


def test_a_command_that_reads_nothing_is_no_defect_in_the_agents_loop() -> None:
    """A credential provider that ends at once: a RuntimeError of uvloop came instead of its exit status."""

    async def run() -> list[int]:
        argv = ("sh", "-c", "exec 0<&-; exit 3")
        found = []
        for _ in range(100):
            task = asyncio.ensure_future(command.run(argv, stdin=b"x" * 100_000, check=False))
            await asyncio.sleep(0)
            time.sleep(0.003)  # the loop is busy: what the process does meanwhile is noticed before anything is written
            found.append((await task).returncode)
        return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run()) == [3] * 100


async def test_a_stream_has_all_that_is_printed() -> None:
    pieces = [piece async for piece in command.stream(["sh", "-c", "echo out; echo err >&2; exit 3"])]
    assert b"".join(pieces) == b"out\nerr\n"


async def test_a_stream_without_end_can_be_left_at_any_moment(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    reading = command.stream(["sh", "-c", f"echo $$ > {mark}; yes"])
    assert (await anext(reading)).startswith(b"y\ny\n")
    await reading.aclose()
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), aclosing(command.stream(["yes"])) as pieces:
            async for _ in pieces:
                pass


async def test_a_stream_that_takes_too_long_or_cannot_start() -> None:
    for argv, said in (
        (["yes"], "not finished after 0.1 s"),
        (["sleep", "60"], "not finished"),
        (["/no"], "cannot start"),
    ):
        with pytest.raises(command.CommandError, match=said):
            async for _ in command.stream(argv, timeout=0.1):
                pass


def test_a_killed_command_whose_pipe_stays_open_leaves_no_complaint() -> None:
    """The transport of a process that nobody closes prints a traceback when the interpreter ends."""
    script = """
import asyncio
from nodelib import command
command._LEFT_OPEN = 0.1
async def main():
    try:
        await command.run(["sh", "-c", "setsid sleep 3 & sleep 60"], timeout=0.3)
    except command.CommandError as error:
        print(error)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "not finished after 0.3 s, killed" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("later", range(6))
async def test_a_cancellation_is_not_lost_when_the_command_has_just_ended(
    later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wait_for() returned the result then, and a loop that runs commands went on after its daemon's end."""
    ended: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()

    async def communicate(*_: object) -> tuple[bytes, bytes]:
        return await ended

    monkeypatch.setattr(command, "_communicate", communicate)
    running = asyncio.create_task(command.run(("true",)))
    await asyncio.sleep(0.2)  # it has started, however long that takes: else the cancellation comes before
    ended.set_result((b"", b""))
    for _ in range(later):
        await asyncio.sleep(0)
    was_cancelled = running.cancel()
    await asyncio.wait({running})
    assert running.cancelled() == was_cancelled
