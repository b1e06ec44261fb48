"""Names that others choose and that become one part of a path."""

from __future__ import annotations


def is_file_name(text: str) -> bool:
    """Whether a path that ends with `/text` is directly below the folder before it."""
    return text not in ("", ".", "..") and "/" not in text and "\0" not in text
