"""A rotated log that was compressed: one gzip member, as log_folder.pack() writes it.

gzip.GzipFile goes on after it, and looks for another member a byte at a time: a pod that may write to the folder adds a
terabyte of nothing, which needs no disk, and whoever reads the log takes days in one call.
"""

from __future__ import annotations

import logging
import zlib
from typing import BinaryIO

log = logging.getLogger(__name__)

_GZIP = 16 + zlib.MAX_WBITS
_MOST_SILENT = 1 << 20  # bytes of the file that may give nothing; a log is text, of which a few give some


class PackedLog:
    """Its content, read once. What is damaged ends there."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unpacker = zlib.decompressobj(_GZIP)
        self._ended = False

    def read(self, most: int) -> bytes:
        """The next bytes, `most` at the most; b"" at the end. Blocking."""
        silent = 0
        while not self._ended:
            data = self._unpacker.unconsumed_tail or self._file.read(most)
            try:
                found = self._unpacker.decompress(data, most)
            except zlib.error as error:
                return self._damaged(str(error))
            silent += len(data)
            if found:
                return found
            self._ended = self._unpacker.eof
            if not self._ended and not data:
                return self._damaged("it ends too early")
            if silent > _MOST_SILENT:
                return self._damaged(f"{silent} bytes of it hold nothing")
        return b""

    def _damaged(self, why: str) -> bytes:
        log.warning("a compressed log is damaged, the rest of it is skipped: %s", why)
        self._ended = True
        return b""
