"""Whether this machine has SELinux enabled, and what its policy calls the files of containers.

Follows github.com/opencontainers/selinux, which upstream's kubelet and the runtimes ask: a writable selinuxfs says that
the kernel has a policy; the policy's folder names the contexts (lxc_contexts). The files are small and the kernel's or
root's own.
"""

from __future__ import annotations

from pathlib import Path

from agent.common.model.selinux import Selinux

_MOST = 1 << 20  # bytes of a file


def selinux(root: str = "/") -> Selinux | None:
    """None: it is not enabled. `root`: where /proc, /etc and /usr are."""
    top = Path(root)
    if not _has_selinuxfs(_text(top / "proc/self/mountinfo")) or _current(top) == "kernel":
        return None
    kind = _value(_text(top / "etc/selinux/config"), "SELINUXTYPE").strip('"')
    known = top / "usr/share/containers/selinux/contexts", top / f"etc/selinux/{kind}/contexts/lxc_contexts"
    contexts = next((text for text in map(_text, known) if text), "")
    process, files = (_value(contexts, name).strip('"') for name in ("process", "file"))
    return Selinux(files if process else "")


def _has_selinuxfs(table: str) -> bool:
    """Whether it is mounted, and not read-only: a container that only sees the machine's has none of its own."""
    for line in table.split("\n"):
        left, _, right = line.partition(" - ")
        if right.startswith("selinuxfs "):
            options = [*left.split(" ")[5:6], *right.split(" ")[2:3]]
            if not any("ro" in one.split(",") for one in options):
                return True
    return False


def _current(top: Path) -> str:
    """The context of this process; "kernel" while no policy is loaded."""
    return _text(top / "proc/self/attr/current").rstrip("\0\n")


def _value(text: str, name: str) -> str:
    """Of a file with lines NAME = VALUE."""
    for line in text.split("\n"):
        key, found, value = line.partition("=")
        if found and key.strip() == name and not line.lstrip().startswith(("#", ";")):
            return value.strip()
    return ""


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST).decode(errors="replace")
    except OSError:
        return ""
