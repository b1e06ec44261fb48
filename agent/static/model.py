"""A manifest as it was read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file: its bytes, or why it cannot be read."""

    path: str
    data: bytes = b""
    problem: str = ""
