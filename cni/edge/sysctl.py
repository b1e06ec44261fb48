"""Kernel settings: /proc/sys of this process's network namespace. Decides nothing."""

from __future__ import annotations

import errno
from pathlib import Path

from nodelib.errors import Permanent

_ROOT = Path("/proc/sys")


def read(name: str) -> str | None:
    """The value of, e.g., "net/ipv4/ip_forward"; None when the kernel has no such setting. Raises Permanent."""
    try:
        return (_ROOT / name).read_text().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(name, error) from error


def write(name: str, value: str) -> None:
    """Raises Permanent when the kernel refuses."""
    try:
        (_ROOT / name).write_text(value)
    except OSError as error:
        raise _refused(name, error) from error


def _refused(name: str, error: OSError) -> Permanent:
    read_only = error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
    dotted = name.replace("/", ".")
    return Permanent(
        error.strerror or str(error),
        obj=dotted,
        step="kernel setting",
        action=f"Set it from outside, where /proc/sys is writable: sysctl -w {dotted}=1" if read_only else "",
    )
