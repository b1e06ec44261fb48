"""Lines of a container log in the CRI format, and the bytes of the answer that they become.

Follows the CRI logging format and its reader (k8s.io/cri-client/pkg/logs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from agent.logs.model import STREAMS, LogOptions

_NANO = 1_000_000_000
_TIME = re.compile(rb"(.{19})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})", re.DOTALL)


def timestamp_ns(text: bytes) -> int:
    """An RFC 3339 time in nanoseconds since the epoch. Raises ValueError."""
    whole, _, rest = text.partition(b".")
    if not rest:
        return _parse(text.decode("ascii")) * _NANO
    digits = len(rest) - len(rest.lstrip(b"0123456789"))
    if not 1 <= digits <= 9:
        raise ValueError(f"{text!r} is not an RFC 3339 time")
    return _parse((whole + rest[digits:]).decode("ascii")) * _NANO + int(rest[:digits].ljust(9, b"0"))


def _parse(text: str) -> int:
    if len(text) < 20:
        raise ValueError(f"{text!r} is not an RFC 3339 time")
    return round(datetime.fromisoformat(text).timestamp())


def fixed_width(text: bytes) -> bytes:
    """The same time with nine digits after the point, as `kubectl logs --timestamps` shows it."""
    whole, point, rest = text.partition(b".")
    if not point:
        return text[:19] + b".000000000" + text[19:]
    digits = len(rest) - len(rest.lstrip(b"0123456789"))
    return whole + b"." + rest[:digits].ljust(9, b"0") + rest[digits:]


class LineFilter:
    """Turns lines of a CRI log into the bytes of the answer.

    A line is `<RFC 3339 time> <stdout|stderr> <tags> <content>`; the tag P means that the content continues in the
    next line of that stream. Lines in another format are counted in `malformed` and skipped, as upstream does.
    `done` becomes true when limitBytes is reached: nothing more will come out.
    """

    def __init__(self, options: LogOptions) -> None:
        self._timestamps = options.timestamps
        self._since = options.since
        self._stream = STREAMS.get(options.stream)
        self._bytes_left = options.limit_bytes
        self._at_line_start = True
        self._seconds: tuple[bytes, bytes, int] = (b"", b"", 0)  # a time's whole seconds, its zone; since the epoch
        self.malformed = 0

    @property
    def done(self) -> bool:
        return self._bytes_left is not None and self._bytes_left <= 0

    def feed(self, lines: bytes) -> bytes:
        """The answer to whole lines (the last one may lack its newline)."""
        out = b"".join(self._entries(lines))
        if self._bytes_left is None:
            return out
        out = out[: max(self._bytes_left, 0)]
        self._bytes_left -= len(out)
        return out

    def _entries(self, lines: bytes) -> Iterator[bytes]:
        for line in _split(lines):
            parts = line.split(b" ", 3)
            at = self._at(parts[0]) if len(parts) == 4 and parts[1] in (b"stdout", b"stderr") else None
            if at is None:
                self.malformed += 1
                continue
            time, stream, tags, content = parts
            if self._stream is not None and stream != self._stream:
                continue
            if self._since is not None and at < self._since:
                continue
            if tags.split(b":", 1)[0] == b"P":
                content = content.removesuffix(b"\n")
            if self._timestamps and self._at_line_start:
                yield fixed_width(time) + b" "
            self._at_line_start = not content or content.endswith(b"\n")
            yield content

    def _at(self, text: bytes) -> int | None:
        """Nanoseconds since the epoch; None for what is no time: a pod may have the folder of its log."""
        found = _TIME.fullmatch(text)
        if found is None:
            return None
        # Lines of the same second follow each other, so the date is parsed once for all of them.
        if found[1] != self._seconds[0] or found[3] != self._seconds[1]:
            try:
                self._seconds = found[1], found[3], timestamp_ns(found[1] + found[3]) // _NANO
            except (ValueError, OverflowError):
                return None
        return self._seconds[2] * _NANO + int((found[2] or b"0").ljust(9, b"0"))


def _split(lines: bytes) -> Iterator[bytes]:
    # bytes.splitlines also breaks at a carriage return, which is content here.
    *whole, rest = lines.split(b"\n")
    for line in whole:
        yield line + b"\n"
    if rest:
        yield rest
