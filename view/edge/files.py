"""The files of the page, as they are in this package."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class File:
    body: bytes
    kind: str


def files() -> dict[str, File]:
    """Every file by its name; nothing else is ever read from the disk."""
    found = {}
    for one in resources.files("view").joinpath("static").iterdir():
        end = one.name[one.name.rfind(".") :]
        if end in _TYPES:
            found[one.name] = File(one.read_bytes(), _TYPES[end])
    return found
