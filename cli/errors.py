"""Turns failures into messages for the user and exit statuses; a traceback is shown only for a defect of ours."""

from __future__ import annotations

import errno
import os
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from nodelib.errors import NodewrightError, Permanent

EXIT_FAILED = 1


def need_root(what: str) -> None:
    """Raises Permanent for users other than root. `what` is the command's name."""
    if os.geteuid() != 0:
        raise Permanent(
            "this command needs root, because it creates network and mount namespaces, cgroups and bridges",
            step=what,
            action=f"Run `sudo ./nodewright {_line_of(what)}`.",
        )


def _line_of(what: str) -> str:
    """The command with the options that the user gave, such as --name."""
    return shlex.join(sys.argv[1:]) if sys.argv[1:2] == [what] else what


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside exception groups, however deep."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def describe(error: BaseException) -> str:
    """What the user reads about one error: its cause, object and step, and what to do."""
    if isinstance(error, NodewrightError):
        lines = [f"error: {error.message}"]
        lines += [f"  {name}: {value}" for name, value in (("on", error.obj), ("while", error.step)) if value]
        lines += [f"  do: {error.action}"] if error.action else []
        return "\n".join(lines)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"error: no space left on the disk\n  on: {error.filename or 'a file'}\n  do: Free some space (`df -h`)."
    if isinstance(error, PermissionError) and os.geteuid() != 0:
        again = f"sudo ./nodewright {shlex.join(sys.argv[1:])}"
        return f"error: permission denied\n  on: {error.filename or 'a file'}\n  do: Run `{again}`."
    if isinstance(error, OSError):
        return f"error: {error}"
    return "error: this is a defect of nodewright itself\n" + "".join(traceback.format_exception(error))


@contextmanager
def reported() -> Iterator[None]:
    """Turns failures of the block into messages on stderr and SystemExit."""
    try:
        yield
    except BrokenPipeError:  # whoever reads our output has stopped, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(EXIT_FAILED) from None
    except KeyboardInterrupt:
        fail(
            "interrupted; run the same command again to continue, or `./nodewright down` to remove what was created",
            130,
        )
    except Exception as error:
        texts = dict.fromkeys(describe(leaf) for leaf in leaves(error))
        fail("\n".join(texts), EXIT_FAILED)


def fail(text: str, status: int) -> NoReturn:
    """Print to stderr and exit."""
    print(text, file=sys.stderr)
    raise SystemExit(status)
