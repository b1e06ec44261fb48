"""What every daemon's command does around its work: settings, log, and an exit status that means the same for all."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from nodelib.daemons import log as logs
from nodelib.daemons import memory
from nodelib.errors import Invalid, NodewrightError

log = logging.getLogger(__name__)


class HasVerbosity(Protocol):
    """Settings that say how much is logged."""

    @property
    def verbosity(self) -> int: ...


S = TypeVar("S", bound=HasVerbosity)


def _verbosity(settings: HasVerbosity) -> logs.LogOptions:
    return logs.LogOptions(settings.verbosity)


def run_daemon(
    name: str,
    argv: Sequence[str] | None,
    load: Callable[[Sequence[str]], S],
    work: Callable[[S], int],
    log_options: Callable[[S], logs.LogOptions] = _verbosity,
) -> int:
    """The exit status of `work`; 1: it failed; 2: the command line or a file that it names is wrong."""
    try:
        settings = load(sys.argv[1:] if argv is None else argv)
    except Invalid as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    logs.setup(log_options(settings), name)
    memory.settle_allocator()
    try:
        return work(settings)
    except Invalid as error:
        log.error("%s", error)
        return 2
    except (NodewrightError, OSError) as error:
        log.error("%s", error)
        return 1
