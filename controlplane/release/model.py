"""The parts of a release as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MODE, EXECUTABLE = 0o644, 0o755


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a wheel. `stored`: it is compressed already."""

    path: str
    content: bytes | Path
    mode: int = MODE
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Component:
    """A piece of software that others wrote, as in an SBOM. `inside`: the files of the release that hold it."""

    kind: str  # golang, pypi, deb or generic
    name: str
    version: str
    inside: tuple[str, ...] = ()
    digest: str = ""  # sha256, of one that is a file of the release
    licence: str = ""  # SPDX expression, if its metadata has one
    qualifiers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """Licence texts that belong to one component: file name and text."""

    component: str
    texts: tuple[tuple[str, str], ...]
