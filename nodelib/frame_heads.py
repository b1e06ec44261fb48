"""The heads of frames (TLS records, HTTP/2) in what arrives in pieces of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator


class FrameHeads:
    """Of one connection. `size`: bytes of a head; `length`: from a head, the bytes of content that follow it."""

    def __init__(self, size: int, length: Callable[[bytes], int]) -> None:
        self._size, self._length = size, length
        self._head = b""  # of a frame whose head has come in part
        self._left = 0  # bytes of a frame that are still to come

    def within(self, data: bytes) -> Iterator[bytes]:
        """Each head that is whole with this piece."""
        at = 0
        while at < len(data):
            if not self._left:
                wanted = self._size - len(self._head)
                self._head += data[at : at + wanted]
                at += wanted
                if len(self._head) < self._size:
                    return
                head, self._head = self._head, b""
                self._left = self._length(head)
                yield head
            taken = min(self._left, len(data) - at)
            at, self._left = at + taken, self._left - taken
