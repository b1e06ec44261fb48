"""Logging of the daemons: one line per event, in UTC, to stderr, where the service manager collects it.

Verbosity, vmodule and the form JSON follow k8s.io/klog and k8s.io/component-base/logs/json.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import orjson

from nodelib.text import harmless, one_line

_LONGEST_LINE = 4096  # bytes, with the line feed
_LONGEST_TRACEBACK = 16 * 1024  # bytes
_DEBUG_FROM = 4  # klog's -v: 0 to 3 is INFO here, 4 and more DEBUG

TEXT, JSON = "text", "json"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """`verbosity` as klog's -v. `vmodule`: pattern of a module's file name without .py, and the verbosity that it has
    if that is more.
    """

    verbosity: int = 0
    form: str = TEXT
    vmodule: tuple[tuple[str, int], ...] = ()


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


class JsonFormatter(logging.Formatter):
    """One JSON object in one line for each record, with upstream's keys: `ts` in milliseconds, `caller`, `msg`, `v` of
    what is no error, `err` and `stacktrace` of an exception; `level` and `logger` besides. Texts are as long as in
    lines.
    """

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{'/'.join(record.pathname.split('/')[-2:])}:{record.lineno}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": harmless(record.getMessage(), _LONGEST_LINE),
        }
        if record.levelno < logging.ERROR:
            event["v"] = 0 if record.levelno >= logging.INFO else _DEBUG_FROM
        if record.exc_info and record.exc_info[1] is not None:
            event["err"] = harmless(repr(record.exc_info[1]), _LONGEST_LINE)
            event["stacktrace"] = harmless(self.formatException(record.exc_info), _LONGEST_TRACEBACK)
        return orjson.dumps(event).decode()


class Levels(logging.Filter):
    """Which records are logged: those of the verbosity, and more of the modules that a pattern of vmodule names."""

    def __init__(self, verbosity: int, vmodule: Sequence[tuple[str, int]]) -> None:
        super().__init__()
        self._verbosity, self._patterns = verbosity, vmodule
        self._levels: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        level = self._levels.get(record.module)
        if level is None:
            level = self._levels[record.module] = self._level_of(record.module)
        return record.levelno >= level

    def set(self, verbosity: int) -> None:
        """From now on; what vmodule names stays."""
        self._verbosity = verbosity
        self._levels.clear()

    @property
    def lowest(self) -> int:
        """The level that any module can have."""
        return _level(max([self._verbosity, *(more for _, more in self._patterns)]))

    def _level_of(self, module: str) -> int:
        # The first pattern that matches counts, as in klog.
        more = next((verbosity for pattern, verbosity in self._patterns if fnmatchcase(module, pattern)), 0)
        return _level(max(self._verbosity, more))


def setup(options: LogOptions, component: str) -> None:
    """Set up the root logger."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if options.form == JSON else LineFormatter(component))
    levels = Levels(options.verbosity, options.vmodule)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    handler.addFilter(levels)
    root.setLevel(levels.lowest)
    for noisy in ("asyncio", "aiohttp.access", "pyroute2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("aiohttp.server").addFilter(_is_ours)
    # A traceback for each answer that is no message; who asked says so in a line, with the object and the step.
    logging.getLogger("grpc._common").setLevel(logging.CRITICAL)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a record of the HTTP server is about a fault of ours. For what is no HTTP it writes a traceback as well,
    and everybody who reaches a port may send that as fast as a disk fills.
    """
    # By name, as programs log that would have to wait for aiohttp to be imported.
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__module__ != "aiohttp.http_exceptions"


def set_verbosity(verbosity: int) -> None:
    """Change the verbosity of what setup() has set up (klog's Level.Set)."""
    root = logging.getLogger()
    found = [one for handler in root.handlers for one in handler.filters if isinstance(one, Levels)]
    for levels in found:
        levels.set(verbosity)
    root.setLevel(min((levels.lowest for levels in found), default=_level(verbosity)))


def _level(verbosity: int) -> int:
    return logging.DEBUG if verbosity >= _DEBUG_FROM else logging.INFO
