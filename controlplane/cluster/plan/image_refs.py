"""Names of images, and which of containerd's references an image consists of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,1023}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def is_name(text: str) -> bool:
    """Whether it can be the name of an image; options and paths cannot."""
    return _NAME.fullmatch(text) is not None


def full_name(name: str) -> str:
    """The name as containerd keeps it: web is docker.io/library/web:latest."""
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif "." not in first and ":" not in first and first != "localhost":
        name = f"docker.io/{name}"
    last = name.rpartition("/")[2]
    return name if ":" in last or "@" in last else f"{name}:latest"


def digests_of(listing: Iterable[str]) -> dict[str, str]:
    """The digest of each reference. `listing`: lines of `ctr images ls`."""
    return {line.split()[0]: found[0] for line in listing if (found := _DIGEST.search(line.partition(" ")[2]))}


def to_import(listing: Iterable[str], wanted: Mapping[str, str]) -> list[str]:
    """The names that are missing, or that stand for another content. `wanted`: a digest by name, "" for any content."""
    there = digests_of(listing)
    return [name for name, digest in wanted.items() if name not in there or (digest and there[name] != digest)]


def references(listing: Iterable[str], name: str) -> list[str]:
    """What has to go for the image `name`: the name first, and what stands for the same content without a tag.

    `listing`: lines of `ctr images ls`. What another tag still needs stays. Empty if there is no such image.
    """
    digests = digests_of(listing)
    wanted = next((one for one in (name, full_name(name)) if one in digests), "")
    if not wanted:
        return []
    same = [one for one, digest in digests.items() if digest == digests[wanted] and one != wanted]
    repository = wanted.partition("@")[0].rpartition(":")[0] if "@" not in wanted else wanted.partition("@")[0]
    if any("@" not in one and not one.startswith("sha256:") for one in same):
        return [wanted]
    return [wanted, *(one for one in same if one.startswith(("sha256:", f"{repository}@")))]


def users(listing: Iterable[str], refs: Iterable[str]) -> list[str]:
    """The containers that were made from one of these references. `listing`: lines of `ctr containers ls`."""
    rows = (line.split() for line in listing)
    wanted = set(refs)
    return [row[0] for row in rows if len(row) > 1 and row[1] in wanted]
