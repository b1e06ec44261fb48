"""Turns failures into messages for the user and exit statuses; a traceback is shown only for a defect of ours."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from cli.command_line import with_sudo
from cli.project import is_checkout
from nodelib.errors import Invalid, NodewrightError, Permanent, WrongUsage
from nodelib.text import harmless, one_line

EXIT_FAILED, EXIT_USAGE = 1, 2
_UNINDENTED = re.compile(r"\n(?! {4})")
_LONGEST = 1 << 16  # bytes of what is said about one error


def need_root(what: str) -> None:
    """Raises Permanent for users other than root. `what` is the command's name."""
    if os.geteuid() != 0:
        raise Permanent(
            f"`nodewright {what}` needs root: the namespaces, processes and files that it works on are root's",
            action=f"Run `{with_sudo(what)}`.",
        )


def need_checkout(what: str) -> None:
    """Raises Invalid in what pip installed: some commands work on the source tree itself. `what` is the command."""
    if not is_checkout():
        raise Invalid(
            "needs nodewright's source tree, and this is an installed package",
            obj=f"nodewright {what}",
            step="find the source tree",
            action=f"Clone the repository, and run the script `nodewright` of that folder: nodewright {what}.",
        )


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside exception groups, however deep."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def describe(error: BaseException) -> str:
    """What the user reads about one error: its cause, object and step, and what to do, harmless to a terminal."""
    return harmless(_described(error), _LONGEST)


def _described(error: BaseException) -> str:
    if isinstance(error, NodewrightError):
        lines = [f"error: {_indented(error.message)}"]
        parts = (("on", error.obj), ("while", error.step), ("do", error.action))
        lines += [f"  {name}: {_indented(value)}" for name, value in parts if value]
        return "\n".join(lines)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"error: no space left on the disk\n  on: {error.filename or 'a file'}\n  do: Free some space (`df -h`)."
    if isinstance(error, PermissionError) and os.geteuid() != 0:
        name = error.filename or "a file that this needs"
        return f"error: only root may use {_printable(name)}\n  do: Run `{with_sudo()}`."
    if isinstance(error, OSError):
        said = error.strerror or str(error) or type(error).__name__
        return "\n".join([f"error: {said}", *([f"  on: {_printable(error.filename)}"] if error.filename else [])])
    return "error: this is a defect of nodewright itself\n" + "".join(traceback.format_exception(error))


def _indented(text: str) -> str:
    """What others said has no line that begins like one of ours."""
    return _UNINDENTED.sub("\n    ", text)


def _printable(name: object) -> str:
    return one_line(os.fsdecode(name) if isinstance(name, bytes) else str(name), 4096)


@contextmanager
def reported(failed: int = EXIT_FAILED) -> Iterator[None]:
    """Turns failures of the block into messages on stderr and SystemExit with the status `failed`, a wrong command
    line with that of click's own usage errors (docs/exit-status.md)."""
    try:
        yield
    except BrokenPipeError:  # whoever reads our output has stopped, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(failed) from None
    except KeyboardInterrupt:
        fail("interrupted; run the same command again to continue", 130)
    except Exception as error:
        found = list(leaves(error))
        is_usage = all(isinstance(one, WrongUsage) for one in found)
        fail("\n".join(dict.fromkeys(map(describe, found))), EXIT_USAGE if is_usage else failed)


def fail(text: str, status: int) -> NoReturn:
    """Print to stderr and exit."""
    print(text, file=sys.stderr)
    raise SystemExit(status)
