"""Small releases for tests: real wheels, with programs of a few bytes."""

from __future__ import annotations

import hashlib
import lzma
from pathlib import Path

from controlplane.binaries.model import TABLE
from controlplane.binaries.work import goarch, key_of
from controlplane.prebuilt import plan
from controlplane.prebuilt.model import DISTRIBUTION, MANIFEST, PACKAGE, Manifest, Packed, Program
from controlplane.release.edge.archives import write_wheel
from controlplane.release.model import Entry
from controlplane.release.plan import wheel
from nodelib.version import KUBERNETES_VERSION

CONTENT = b"#!/bin/sh\necho hello\n" * 5000
VERSION = "9.9.9"
NEEDED = ("nodewright-controlplane", "containerd", "containerd-shim-runc-v2", "runc", "ctr", "kubectl")


def packed(part: str, file: str, content: bytes) -> Packed:
    return Packed(part, file, len(content), hashlib.sha256(content).hexdigest())


def manifest(*names: str, content: bytes = CONTENT, xz: bytes | None = None, version: str = VERSION) -> Manifest:
    """A release with these programs, as this version would build them, all with the same content."""
    squeezed = lzma.compress(content) if xz is None else xz
    digest = hashlib.sha256(content).hexdigest()
    programs = tuple(
        Program(name, key_of(TABLE[name]), len(content), digest, packed(PACKAGE, f"{name}.xz", squeezed))
        for name in names
    )
    return Manifest(version, "c" * 40, KUBERNETES_VERSION, goarch(), programs, {}, None)


def write(folder: Path, listed: Manifest, xz: bytes | None = None, text: str = "") -> Path:
    """The wheel of a release. `text`: another release.json than the one of `listed`."""
    folder.mkdir(parents=True, exist_ok=True)
    squeezed = lzma.compress(CONTENT) if xz is None else xz
    entries = [Entry(f"{PACKAGE}/{one.packed.file}", squeezed, stored=True) for one in listed.programs]
    entries.append(Entry(f"{PACKAGE}/{MANIFEST}", (text or plan.text(listed)).encode()))
    tag = wheel.platform_tag(goarch())
    metadata = wheel.part_metadata(DISTRIBUTION, listed.version, (), ">=3.11")
    files = wheel.complete(DISTRIBUTION, listed.version, tag, entries, metadata, {"licenses/LICENSE": "L"})
    target = folder / wheel.file_name(DISTRIBUTION, listed.version, tag)
    write_wheel(target, files, f"{wheel.info_folder(DISTRIBUTION, listed.version)}/RECORD", 1_700_000_000)
    return target
