"""Logging of the daemons: one line per event, in UTC, to stderr, where the service manager collects it."""

from __future__ import annotations

import logging
import sys
import time

from nodelib.text import harmless, one_line

_LONGEST_LINE = 4096  # bytes, with the line feed
_LONGEST_TRACEBACK = 16 * 1024  # bytes


class LineFormatter(logging.Formatter):
    """One line of at most 4 KiB for each record, whatever it quotes: others write their output, names and errors into
    it, and could otherwise forge lines, drive a reader's terminal or fill the disk. Only a traceback has its own lines.
    """

    def __init__(self, component: str) -> None:
        super().__init__(
            f"%(asctime)s.%(msecs)03dZ %(levelname).1s {component} %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record), _LONGEST_LINE - 1)

    def formatException(self, ei: object) -> str:
        return harmless(super().formatException(ei), _LONGEST_TRACEBACK)  # type: ignore[arg-type] # as logging passes it


def setup(verbosity: int, component: str) -> None:
    """Set up the root logger. `verbosity` as klog's -v: 0 to 3 is INFO, 4 and more DEBUG."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(component))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity >= 4 else logging.INFO)
    for noisy in ("asyncio", "aiohttp.access", "pyroute2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
