"""Certificates in PEM text that others write, in linear time."""

from __future__ import annotations

from collections.abc import Iterator

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def certificates(text: str) -> Iterator[str]:
    """What stands between each end of a certificate and the last beginning before it.

    Not by an expression: those for this try every beginning with every end, and every blank with every other, which
    takes hours for a text of 1 MiB that its author chose, and holds the interpreter meanwhile.
    """
    at = 0
    while (end := text.find(_END, at)) >= 0:
        begin = text.rfind(_BEGIN, at, end)
        if begin >= 0:
            yield text[begin + len(_BEGIN) : end]
        at = end + len(_END)
