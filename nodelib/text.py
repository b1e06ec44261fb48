"""Text from outside (output of containers, answers of plugins and servers) on its way to logs, Events and statuses."""

from __future__ import annotations

import re
from collections.abc import Sequence

# C0, DEL and C1 drive terminals, the next ones break or reorder lines, a lone surrogate cannot be written as UTF-8, and
# tags are letters that nobody sees.
_BREAKING = "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f"
_CONTROL = re.compile(f"[\x00-\x1f\x7f-\x9f{_BREAKING}]")
_CONTROL_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BREAKING}]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def one_line(text: str, most: int) -> str:
    """`text` in one line of at most `most` bytes of UTF-8, with control characters shown as escapes."""
    if len(text) <= most and text.isascii() and text.isprintable():
        return text  # almost all of it is, and spans have a dozen each
    return cut(_CONTROL.sub(_escape, cut(text, most)), most)


def harmless(text: str, most: int) -> str:
    """As one_line(), but line feeds and tabs stay."""
    return cut(visible(cut(text, most)), most)


def visible(text: str) -> str:
    """`text` of any length with control characters shown as escapes; line feeds and tabs stay."""
    return _CONTROL_IN_LINES.sub(_escape, text)


def counted(number: int, what: str) -> str:
    """`counted(1, "node")` is "1 node", `counted(2, "node")` "2 nodes"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def first_of(words: Sequence[object], most: int) -> str:
    """The first `most` with commas between, and how many there are more."""
    shown = ", ".join(map(str, words[:most]))
    return f"{shown} and {len(words) - most} more" if len(words) > most else shown


def cut(text: str, most: int) -> str:
    """`text` in at most `most` bytes of UTF-8. What is too long loses its middle, since causes come last."""
    if len(text) * 4 <= most:
        return text
    # No character takes less than a byte: the rest of an enormous text is not even encoded.
    head, tail = text[:most].encode(errors="replace"), text[-most:].encode(errors="replace")
    if len(text) <= most and len(head) <= most:
        return text
    gap = f" … {len(text)} characters … "
    room = most - len(gap.encode())
    if room <= 0:
        return head[:most].decode(errors="ignore")
    first, last = room - room // 4, room // 4
    return head[:first].decode(errors="ignore") + gap + tail[len(tail) - last :].decode(errors="ignore")


def _escape(found: re.Match[str]) -> str:
    char = found.group()
    number = ord(char)
    return _SHORT.get(char) or (
        f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
    )
