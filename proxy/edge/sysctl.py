"""Kernel settings: /proc/sys of this network namespace."""

from __future__ import annotations

from pathlib import Path

from nodelib.errors import Temporary

_ROOT = Path("/proc/sys")


def read_int(name: str, root: Path = _ROOT) -> int | None:
    """The value of `name`, written with slashes (net/ipv4/ip_forward); None where the kernel has no such setting."""
    try:
        return int((root / name).read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def ensure(name: str, value: int, root: Path = _ROOT) -> bool:
    """Set `name` to `value`. False: it had that value already. Raises Temporary when it cannot be set."""
    old = read_int(name, root)
    if old == value:
        return False
    try:
        (root / name).write_text(str(value))
    except OSError as error:
        raise Temporary(
            f"cannot be set to {value} (is {old}): {error.strerror}",
            obj=f"sysctl {name}",
            step="write",
            action="In a network namespace some settings belong to the host: set it there, or set the "
            "value in the configuration to 0 to leave it as it is.",
        ) from error
    return True


def cpu_count(path: Path = Path("/sys/devices/system/cpu/online")) -> int:
    """CPUs of the machine, not of this process, because nf_conntrack_max holds for the whole host."""
    count = 0
    try:
        for part in path.read_text().strip().split(","):
            low, _, high = part.partition("-")
            count += int(high or low) - int(low) + 1
    except (OSError, ValueError):
        return 1
    return max(count, 1)
