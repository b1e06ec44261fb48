"""A command gets a terminal of its own, or none: never that of the person who runs it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[4]
RUN = "import os, sys; from controlplane.machine.edge import terminal; sys.exit(terminal.run(sys.argv[1:], os.environ))"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PROJECT)}
_TIOCGPTN = 0x80045430  # ioctl_tty(2): the number of a pseudoterminal


class Person:
    """At a terminal of 33 lines and 77 columns, with a command that run() runs."""

    def __init__(self, *argv: str) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
            os.execve(sys.executable, [sys.executable, "-c", RUN, *argv], ENVIRONMENT)
        os.set_blocking(self.terminal, False)
        self.seen = ""

    def sees(self, wanted: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while wanted not in self.seen:
            assert select.select([self.terminal], [], [], deadline - time.monotonic())[0], f"only {self.seen!r}"
            self.seen += os.read(self.terminal, 65536).decode()

    def types(self, text: str) -> None:
        """And looks meanwhile: a terminal that nobody reads keeps its writer."""
        left = text.encode()
        while left:
            readable, writable, _ = select.select([self.terminal], [self.terminal], [], 30)
            assert readable or writable, "the terminal is stuck"
            if readable:
                self.seen += os.read(self.terminal, 65536).decode()
            if writable:
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(self.terminal, left) :]

    def ends(self) -> int:
        deadline = time.monotonic() + 30
        while True:
            try:  # a terminal that nobody reads keeps its writer
                while select.select([self.terminal], [], [], 0.02)[0] and (piece := os.read(self.terminal, 65536)):
                    self.seen += piece.decode()
            except OSError:
                pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.terminal)
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, f"it goes on: {self.seen!r}"


@pytest.fixture(params=[signal.SIG_DFL, signal.SIG_IGN], ids=["in a terminal", "in the background"], autouse=True)
def ways_to_start(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a shell starts with & ignores Ctrl-C, and so would all that it starts."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_terminal_is_another_one_of_the_same_size() -> None:
    person = Person("/bin/sh", "-c", "tty; stty size; exit 7")
    outer = f"/dev/pts/{struct.unpack('i', fcntl.ioctl(person.terminal, _TIOCGPTN, bytes(4)))[0]}"
    assert person.ends() == 7
    name, size = person.seen.split("\r\n")[:2]
    assert name.startswith("/dev/pts/") and name != outer
    assert size == "33 77"


def test_what_is_typed_arrives_and_control_c_is_for_the_command() -> None:
    script = "trap 'echo interrupted; exit 5' INT; read word; echo got $word; while sleep 0.1; do :; done"
    person = Person("/bin/sh", "-c", script)
    person.types("hello\r")
    person.sees("got hello")
    person.types("\x03")
    person.sees("interrupted")
    assert person.ends() == 5


def test_the_terminal_is_as_before_when_the_command_has_ended() -> None:
    inner = f'"{sys.executable}" -c "{RUN}" /bin/sh -c "stty -echo raw; kill -9 \\$\\$"'
    person = Person(
        "/bin/sh", "-c", f'before=$(stty -g); {inner}; echo $?; test "$before" = "$(stty -g)" && echo the same'
    )
    assert person.ends() == 0
    assert person.seen.split() == ["137", "the", "same"]


def test_much_is_pasted_while_much_is_printed() -> None:
    person = Person(
        "/bin/sh", "-c", "stty raw -echo; echo ready; head -c 200000 /dev/zero | tr '\\0' x; head -c 20000 | wc -c"
    )
    person.sees("ready")
    person.types("y" * 20000)
    person.sees("20000")
    assert person.ends() == 0


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -9 $$", 137)], ids=["exit", "signal"])
def test_without_a_terminal_the_exit_status_is_the_same(script: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, "/bin/sh", "-c", script], env=ENVIRONMENT, stdin=subprocess.DEVNULL
    )
    assert done.returncode == status


def test_files_and_pipes_are_handed_on() -> None:
    argv = [sys.executable, "-c", RUN, "/bin/sh", "-c", "cat; echo err >&2"]
    done = subprocess.run(argv, env=ENVIRONMENT, input=b"in", capture_output=True)
    assert (done.stdout, done.stderr) == (b"in", b"err\n")


def test_a_command_whose_output_is_no_terminal_has_none_either(tmp_path: Path) -> None:
    """`nodewright shell node1 -- COMMAND >file`: what is typed still arrives, by a pipe."""
    out = tmp_path / "out"
    script = (
        f"exec >{out}; (: </dev/tty) 2>/dev/null && echo has one; test -t 0 && echo typed at; read word; echo $word"
    )
    person = Person("/bin/sh", "-c", f'exec "{sys.executable}" -c "{RUN}" /bin/sh -c \'{script}\' </dev/tty >/dev/null')
    person.types("hello\r")
    assert person.ends() == 0
    assert out.read_text() == "hello\n"


def test_a_program_that_is_not_there_is_said() -> None:
    person = Person("/no/such")
    assert person.ends() == 127 and "/no/such: No such file" in person.seen
    done = subprocess.run([sys.executable, "-c", RUN, "/no/such"], env=ENVIRONMENT, input=b"", capture_output=True)
    assert (done.returncode, done.stderr) == (127, b"/no/such: No such file or directory\n")
