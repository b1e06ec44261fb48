"""Names and metadata of the wheels, and which files go into which. Pure.

https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controlplane.prebuilt.model import DISTRIBUTION
from controlplane.release.model import Entry
from nodelib.errors import Invalid

LIMIT = 100_000_000  # bytes that PyPI takes for one file by default
ROOM = 2_000_000  # bytes for the rest of a wheel: licence texts, metadata, the directory of the zip
PURE = "py3-none-any"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def platform_tag(architecture: str) -> str:
    """The tag of wheels with static programs for Linux, which need no glibc; Go's name of the architecture."""
    return f"py3-none-manylinux2014_{_MACHINES.get(architecture, architecture)}"


def file_name(name: str, version: str, tag: str) -> str:
    """https://packaging.python.org/en/latest/specifications/binary-distribution-format/#file-name-convention"""
    return f"{escaped(name)}-{escaped(version)}-{tag}.whl"


def escaped(name: str) -> str:
    """A name or version where `-` separates."""
    return name.replace("-", "_")


def parts(count: int) -> tuple[str, ...]:
    """Names of the wheels that hold the programs: the first requires the others."""
    return (DISTRIBUTION, *(f"{DISTRIBUTION}-{number}" for number in range(2, count + 1)))


def split(sizes: Mapping[str, int], limit: int = LIMIT - ROOM) -> list[list[str]]:
    """Names of files, in their order, so that no group is larger than `limit` bytes together.

    Raises Invalid for a file that is too large by itself.
    """
    groups: list[list[str]] = []
    used: list[int] = []
    for name, size in sizes.items():
        if size > limit:
            raise Invalid(
                f"has {size / 1e6:.1f} MB, and a wheel may have {limit / 1e6:.0f}",
                obj=name,
                step="divide the programs among wheels",
                action="Divide it, or ask PyPI for a higher limit and raise LIMIT.",
            )
        place = next((number for number, taken in enumerate(used) if taken + size <= limit), len(groups))
        if place == len(groups):
            groups.append([])
            used.append(0)
        groups[place].append(name)
        used[place] += size
    return groups


def packaged(tree: Iterable[str], settings: Mapping[str, Any]) -> list[str]:
    """The files of the tree that belong into the wheel of the code: everything in the folders of its packages."""
    found = settings["tool"]["setuptools"]["packages"]["find"]["include"]
    folders = {pattern.rstrip("*") for pattern in found}
    return sorted(path for path in tree if path.partition("/")[0] in folders and "/" in path)


def code_metadata(project: Mapping[str, Any], readme: str) -> str:
    """METADATA of nodewright."""
    requires = [f"Requires-Dist: {one}" for one in project["dependencies"]]
    head = _head(project["name"], project["version"], project["description"], project["requires-python"])
    return "\n".join((*head, *requires, "Description-Content-Type: text/markdown", "", readme))


def part_metadata(name: str, version: str, needs: Sequence[str], python: str) -> str:
    """METADATA of a wheel with programs. `needs`: the other wheels, of just this version."""
    head = _head(name, version, "Programs and images of nodewright's clusters, built", python)
    return "\n".join((*head, *(f"Requires-Dist: {one}=={version}" for one in needs), "", _ABOUT))


_ABOUT = """Programs that others wrote, built from their published sources: Kubernetes, etcd, containerd, runc,
CoreDNS.

`nodewright up` unpacks them once and then builds nothing. Their licences are in this wheel's licenses folder, the list
of all parts is the SBOM that is published beside it. The images hold packages of Debian, whose sources are at
https://sources.debian.org/.
"""


def _head(name: str, version: str, summary: str, python: str) -> list[str]:
    return [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {version}",
        f"Summary: {summary}",
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        f"Requires-Python: {python}",
    ]


def entry_points(project: Mapping[str, Any]) -> str:
    """entry_points.txt: the programs that pip puts into bin."""
    return "[console_scripts]\n" + "".join(f"{name} = {call}\n" for name, call in project["scripts"].items())


def complete(
    name: str, version: str, tag: str, entries: Iterable[Entry], metadata: str, more: Mapping[str, str]
) -> list[Entry]:
    """All files of a wheel but its RECORD, in their order: those of .dist-info last. `more`: its other files."""
    info = info_folder(name, version)
    wheel = f"Wheel-Version: 1.0\nGenerator: nodewright\nRoot-Is-Purelib: {str(tag == PURE).lower()}\nTag: {tag}\n"
    texts = {"METADATA": metadata, "WHEEL": wheel, **more}
    ours = [Entry(f"{info}/{path}", text.encode()) for path, text in texts.items()]
    return [*sorted(entries, key=lambda one: one.path), *sorted(ours, key=lambda one: one.path)]


def info_folder(name: str, version: str) -> str:
    """The folder of a wheel's metadata."""
    return f"{escaped(name)}-{escaped(version)}.dist-info"
