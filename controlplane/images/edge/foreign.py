"""Checks an archive made elsewhere (docker save, podman save, buildah, skopeo) before nodes load it."""

from __future__ import annotations

import tarfile
from pathlib import Path

from nodelib.errors import Invalid, NotFound

_STEP = "load an image"
_GZIP = b"\x1f\x8b"
_OTHER = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}
_MARKS = ("index.json", "manifest.json", "oci-layout")


def refuse_if_no_image(path: Path) -> bool:
    """Whether the archive is compressed with gzip. Raises NotFound, or Invalid for what is no OCI or docker archive."""
    try:
        with path.open("rb") as file:
            head = file.read(6)
    except FileNotFoundError as error:
        raise NotFound(
            "no such file", obj=str(path), step=_STEP, action="`docker save -o FILE IMAGE` makes one"
        ) from error
    except OSError as error:
        raise Invalid(error.strerror or str(error), obj=str(path), step=_STEP, action="Give a file.") from error
    for magic, name in _OTHER.items():
        if head.startswith(magic):
            raise Invalid(
                f"it is compressed with {name}", obj=str(path), step=_STEP, action=f"Unpack it first: {name} -d {path}"
            )
    if not _holds_an_image(path):
        raise Invalid(
            f"a tar without {' or '.join(_MARKS[:2])}: no image",
            obj=str(path),
            step=_STEP,
            action="Use `docker save`, not `docker export`; an OCI layout must lie at the top of the archive.",
        )
    return head.startswith(_GZIP)


def _holds_an_image(path: Path) -> bool:
    try:
        with tarfile.open(path, "r:*") as tar:
            return any(member.name.removeprefix("./") in _MARKS for member in tar)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Invalid(
            f"not a readable tar: {str(error).splitlines()[0]}",
            obj=str(path),
            step=_STEP,
            action="Make it again: `docker save -o FILE IMAGE`, or skopeo copy ... oci-archive:FILE",
        ) from error
