"""How a failure leaves the command line: one block of plain words and an exit status, never a traceback."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from nodelib.errors import NodewrightError, Permanent

EXIT_FAILED = 1


def need_root(what: str) -> None:
    """Raises Permanent for other users than root."""
    if os.geteuid() != 0:
        raise Permanent(
            "this needs root: it makes network and mount namespaces, cgroups and bridges",
            step=what,
            action=f"Run `sudo ./nodewright {what}`.",
        )


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside of exception groups, causes of a cancellation last."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def describe(error: BaseException) -> str:
    """What a user reads about one error: object, step, cause, what to do."""
    if isinstance(error, NodewrightError):
        lines = [f"error: {error.message}"]
        lines += [f"  {name}: {value}" for name, value in (("on", error.obj), ("while", error.step)) if value]
        lines += [f"  do: {error.action}"] if error.action else []
        return "\n".join(lines)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"error: no space left on the disk\n  on: {error.filename or 'a file'}\n  do: free some space (`df -h`)"
    if isinstance(error, OSError):
        return f"error: {error}"
    return "error: a defect of nodewright itself\n" + "".join(traceback.format_exception(error))


@contextmanager
def reported() -> Iterator[None]:
    """Turns failures of the block into messages and SystemExit."""
    try:
        yield
    except BrokenPipeError:  # the reader of our output has seen enough (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(EXIT_FAILED) from None
    except KeyboardInterrupt:
        fail("interrupted; run the same command again to go on, or `./nodewright down` to remove what was made", 130)
    except Exception as error:
        texts = dict.fromkeys(describe(leaf) for leaf in leaves(error))
        fail("\n".join(texts), EXIT_FAILED)


def fail(text: str, status: int) -> NoReturn:
    """Print to stderr and end."""
    print(text, file=sys.stderr)
    raise SystemExit(status)
