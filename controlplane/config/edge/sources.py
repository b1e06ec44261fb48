"""Reads the file of a cluster: a path, or `-` for the standard input."""

from __future__ import annotations

import sys

from nodelib.errors import Invalid, NotFound
from nodelib.files import bytes_of

_LARGEST = 1 << 18  # bytes


def config_text(path: str) -> str:
    """The text of the file. Raises NotFound or Invalid."""
    step = "read the cluster's file"
    try:
        data = sys.stdin.buffer.read(_LARGEST + 1) if path == "-" else bytes_of(path, _LARGEST + 1)
        text = data.decode("utf-8")
    except FileNotFoundError as error:
        raise NotFound(
            "no such file",
            obj=path,
            step=step,
            action="`./nodewright up --print-config > cluster.yaml` writes one to begin with.",
        ) from error
    except UnicodeDecodeError as error:
        raise Invalid(f"is not UTF-8: {error}", obj=path, step=step, action="Save it as UTF-8.") from error
    except IsADirectoryError as error:
        raise Invalid("is a folder", obj=path, step=step, action="Name the file in it.") from error
    except OSError as error:
        raise Invalid(error.strerror or str(error), obj=path, step=step, action="Name a file.") from error
    if len(data) > _LARGEST:
        raise Invalid(f"is larger than {_LARGEST >> 10} KiB", obj=path, step=step, action="Is it the right file?")
    return text
