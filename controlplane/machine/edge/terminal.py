"""Runs a command that must not get this terminal, only one of its own between them.

Whoever is root in a node can open what its processes have open. With the terminal of the person who asked for the shell
he could put commands into it (TIOCSTI, ioctl_tty(2)), which the shell of this machine would run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import threading
import tty
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

_PIECE = 1 << 16  # bytes
_SIZE = bytes(8)  # struct winsize, tty_ioctl(4)
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_NOT_STARTED = 127


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit status of the command, 128 and its number for a signal. It has a session of its own in any case."""
    if os.isatty(0) and os.isatty(1):
        return _with_terminal(argv, environment)
    return _with_pipes(argv, environment)


def _with_terminal(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    size = fcntl.ioctl(0, termios.TIOCGWINSZ, _SIZE)
    child, inner = pty.fork()
    if child == 0:
        try:
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            for number in _PASSED_ON:  # in a terminal of its own, whatever this process ignores
                signal.signal(number, signal.SIG_DFL)
            os.execve(argv[0], list(argv), dict(environment))
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\r\n".encode())
        finally:
            os._exit(_NOT_STARTED)
    with _raw(), _followed_size(inner):
        _relay(inner)
    os.close(inner)
    return _status(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _with_pipes(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """What is a file or a pipe already is handed on as it is."""
    ways = [subprocess.PIPE if os.isatty(number) else None for number in range(3)]
    try:
        process = subprocess.Popen(
            argv, env=dict(environment), stdin=ways[0], stdout=ways[1], stderr=ways[2], start_new_session=True
        )
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        return _NOT_STARTED
    copies = [
        threading.Thread(target=_copy, args=(pipe.fileno(), number), daemon=True)
        for number, pipe in ((1, process.stdout), (2, process.stderr))
        if pipe is not None
    ]
    if process.stdin is not None:  # nobody waits for what is typed after the end
        threading.Thread(target=_copy_input, args=(process.stdin.fileno(),), daemon=True).start()
    for one in copies:
        one.start()
    with _signals_passed_on(process.pid):
        code = process.wait()
    for one in copies:
        one.join()
    return _status(code)


def _relay(inner: int) -> None:
    """Until all that has the inner terminal open is gone."""
    typed, here = b"", True
    os.set_blocking(inner, False)  # who waits here until the command reads does not take what it prints
    while True:
        readable, writable, _ = select.select(
            [inner, *([0] if here and not typed else [])], [inner] if typed else [], []
        )
        if inner in readable and not _copied(inner, 1):
            return
        if 0 in readable:
            typed = os.read(0, _PIECE)
            here = bool(typed)
        if inner in writable:
            with contextlib.suppress(BlockingIOError):  # a terminal takes a few KiB
                typed = typed[os.write(inner, typed) :]


def _copied(source: int, target: int) -> bool:
    try:
        piece = os.read(source, _PIECE)
    except BlockingIOError:
        return True
    except OSError:  # EIO: the other side of a terminal is closed
        return False
    _write(target, piece)
    return bool(piece)


def _copy(source: int, target: int) -> None:
    while _copied(source, target):
        pass


def _copy_input(target: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        _copy(0, target)
    os.close(target)


def _write(target: int, piece: bytes) -> None:
    while piece:
        piece = piece[os.write(target, piece) :]


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what was typed already is kept
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _followed_size(inner: int) -> Iterator[None]:
    def follow(number: int = 0, frame: FrameType | None = None) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(inner, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, _SIZE))

    before = signal.signal(signal.SIGWINCH, follow)
    follow()
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


@contextlib.contextmanager
def _signals_passed_on(leader: int) -> Iterator[None]:
    """To the whole session: a Ctrl-C reaches only this process now."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, number)

    heard = [number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]  # nohup, jobs with &
    before = {number: signal.signal(number, pass_on) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code
