"""`python confinement.py UNIT COMMAND…`: runs a command confined as systemd would by the unit file. Needs no systemd.

Obeyed: NoNewPrivileges, CapabilityBoundingSet, SystemCallFilter, RestrictAddressFamilies, RestrictNamespaces and
MemoryDenyWriteExecute (by the kernel's own PR_SET_MDWE instead of a filter). Not what makes mounts. Groups of system
calls are asked from `systemd-analyze syscall-filter`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_MDWE = 38, 22, 24, 65
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000 | errno.EPERM
_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16, "AF_PACKET": 17}
_SPACES = {
    "mnt": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_HEADERS = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}
_LIBC = ctypes.CDLL(None, use_errno=True)

Instruction = tuple[int, int, int, int]


def header() -> Path:
    """Where the numbers of system calls are."""
    return Path("/usr/include", _HEADERS.get(os.uname().machine, "missing"))


def settings(unit: str) -> dict[str, list[str]]:
    """The values of each setting, in their order."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^([A-Z]\w+)=(.*)$", Path(unit).read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def _numbers() -> dict[str, int]:
    rows = re.findall(r"^#define __NR_(\w+)\s+(\d+)$", header().read_text(), re.MULTILINE)
    return {name: int(number) for name, number in rows}


def _group(name: str) -> set[str]:
    """The system calls of a group; groups hold groups."""
    if not name.startswith("@"):
        return {name}
    shown = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    words = [line.strip() for line in shown.stdout.splitlines()[1:] if line.strip() and "#" not in line]
    return set().union(*map(_group, words))


def _load(at: int) -> Instruction:
    return (0x20, 0, 0, at)  # BPF_LD | BPF_W | BPF_ABS


def _end(action: int) -> Instruction:
    return (0x06, 0, 0, action)


def _filtered(values: list[str]) -> list[Instruction]:
    allow = not values[0].startswith("~")
    names = set().union(*(_group(word.lstrip("~")) for value in values for word in value.split()))
    # What was not there when this systemd was made is not known to it either; execve is how all this begins.
    calls = [number for name, number in _numbers().items() if name in names or (allow and name == "execve")]
    listed, other = (_ALLOW, _ERRNO) if allow else (_ERRNO, _ALLOW)
    program: list[Instruction] = [_load(0)]
    for number in calls:
        program += [(0x15, 0, 1, number), _end(listed)]  # BPF_JMP | BPF_JEQ
    return [*program, _end(other)]


def _families(values: list[str]) -> list[Instruction]:
    wanted = [_FAMILIES[word] for value in values for word in value.split()]
    program: list[Instruction] = [_load(0), (0x15, 1, 0, _numbers()["socket"]), _end(_ALLOW), _load(16)]
    for family in wanted:
        program += [(0x15, 0, 1, family), _end(_ALLOW)]
    return [*program, _end(_ERRNO)]


def _namespaces(value: str) -> Iterable[list[Instruction]]:
    allowed = 0 if value == "yes" else sum(_SPACES[word] for word in value.split())
    forbidden = sum(_SPACES.values()) & ~allowed
    for call, argument in (("unshare", 0), ("clone", 0), ("setns", 1)):
        test: list[Instruction] = [(0x45, 0, 1, forbidden), _end(_ERRNO)]  # BPF_JMP | BPF_JSET
        if call == "setns":
            test = [(0x15, 0, 1, 0), _end(_ERRNO), *test]
        yield [
            _load(0),
            (0x15, 1, 0, _numbers()[call]),
            _end(_ALLOW),
            _load(16 + 8 * argument),
            *test,
            _end(_ALLOW),
        ]


def _install(program: list[Instruction]) -> None:
    code = b"".join(struct.pack("HBBI", *one) for one in program)
    held = ctypes.create_string_buffer(code)
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(held))
    _prctl(_PR_SET_SECCOMP, 2, ctypes.create_string_buffer(head))


def _prctl(what: int, first: int, second: object = 0) -> None:
    if _LIBC.prctl(what, ctypes.c_ulong(first), second, ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {what}")


def _drop(values: list[str]) -> None:
    text = Path("/usr/include/linux/capability.h").read_text()
    every = {name: int(number) for name, number in re.findall(r"^#define (CAP_\w+)\s+(\d+)$", text, re.MULTILINE)}
    named = {word for value in values for word in value.lstrip("~").split()}
    assert named <= set(every), named - set(every)
    for name in named if values[0].startswith("~") else set(every) - named:
        _prctl(_PR_CAPBSET_DROP, every[name])


def confine(unit: str) -> None:
    """Confine this process as the unit says. Raises OSError."""
    found = settings(unit)
    programs = []
    if "SystemCallFilter" in found:
        programs.append(_filtered(found["SystemCallFilter"]))
    if "RestrictAddressFamilies" in found:
        programs.append(_families(found["RestrictAddressFamilies"]))
    if "RestrictNamespaces" in found:
        programs += _namespaces(found["RestrictNamespaces"][0])
    _drop(found["CapabilityBoundingSet"])
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if found.get("MemoryDenyWriteExecute") == ["yes"]:
        _prctl(_PR_SET_MDWE, 1)
    for program in programs:
        _install(program)


if __name__ == "__main__":
    confine(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])
