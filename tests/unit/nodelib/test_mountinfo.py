"""The mount table, whatever names others have put into it."""

from __future__ import annotations

import os

import pytest

from nodelib import mountinfo
from nodelib.cgroups import find_mounts, mounts_here
from nodelib.mountinfo import Mount

# A pod chooses the end of the root: it is the name of a folder that is bound as its sub path. The second and third
# group of a mount that receives and passes on (MS_SLAVE, then MS_SHARED) make enough words for a line of their own.
_LINE = (
    "1485 1484 0:476 /other/a{}b /var/lib/kubelet/pods/u/volume-subpaths/v/c/0 rw shared:214 master:213 - tmpfs t rw\n"
)
_CGROUP = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
NAMES = ["\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\u00a0", "\udcff", " - ", "\r\u2028 - "]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_is_one_name(name: str) -> None:
    line = _LINE.format(name.replace(" ", "\\040"))
    found = list(mountinfo.parsed(os.fsencode(line + _CGROUP)))
    assert found[0] == Mount(
        "/var/lib/kubelet/pods/u/volume-subpaths/v/c/0", f"/other/a{name}b", "tmpfs", "rw", "0:476"
    )
    assert find_mounts(found).points == {"": "/sys/fs/cgroup"}


def test_escapes_are_bytes_and_what_is_no_line_is_left_out() -> None:
    text = b"1 2 0:3 /a\\134040 /\\303\\251\\040x rw - ext4 /dev/x rw\n\n1 2\n - a b c\nx - \n"
    assert list(mountinfo.parsed(text)) == [Mount("/\u00e9 x", "/a\\040", "ext4", "rw", "0:3")]


def test_our_own_is_read() -> None:
    assert "/" in {one.path for one in mountinfo.of_process()}
    assert mountinfo.of_process(containing="/no such mount point") == []


def test_of_thousands_of_mounts_only_cgroups_are_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a second of one processor each time the node was looked at, every ten seconds, with a hundred pods."""
    with open("/proc/self/mountinfo", "rb") as file:
        table = file.read()
    taken = list[str]()

    def seen(process: int | str = "self", containing: str = "") -> list[Mount]:
        found = list(mountinfo.parsed(os.fsencode(_LINE.format("c")) * 5000 + table, containing))
        taken.extend(one.fs_type for one in found)
        return found

    everything = find_mounts(seen())
    taken.clear()
    monkeypatch.setattr(mountinfo, "of_process", seen)
    assert mounts_here() == everything and set(taken) <= {"cgroup", "cgroup2"}
