"""`install --root` and `uninstall --root` in a tree of another user, who may have put anything there."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controlplane.host.edge.tree import Tree
from controlplane.host.plan.host_files import RECORD, digest
from controlplane.host.work.install import install, uninstall
from nodelib.errors import Invalid

TTL = "net.ipv4.ip_default_ttl"


def record(root: Path, content: object) -> None:
    path = root / RECORD.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.parametrize("to", ["outside", "/outside", "../../outside"])
async def test_nothing_is_written_through_a_link(tmp_path: Path, to: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "usr/local").mkdir(parents=True)
    outside.mkdir()
    for link in (root / "etc", root / "usr/local/bin"):
        link.symlink_to(outside if to == "outside" else to)
    with pytest.raises(Invalid):  # such a link leads nowhere in a tree that has no such folder
        await install("/srv/nodewright", str(root))
    assert not list(outside.iterdir())


async def test_links_within_the_tree_are_followed(tmp_path: Path) -> None:
    """As in images whose /usr/local is elsewhere; a link to / means the tree's."""
    (tmp_path / "var/usrlocal").mkdir(parents=True)
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/local").symlink_to("/var/usrlocal")
    await install("/srv/nodewright", str(tmp_path))
    assert (tmp_path / "var/usrlocal/bin/kubelet").is_file()
    assert not (await uninstall(str(tmp_path))).kept
    assert not (tmp_path / "var/usrlocal/bin").exists()


async def test_the_record_of_a_tree_removes_nothing_outside_of_it(tmp_path: Path) -> None:
    root, mine = tmp_path / "root", tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "empty").mkdir()
    record(root, {"files": {"/../mine": digest(b"mine"), "/x/../../mine": digest(b"mine")}, "dirs": ["/../empty"]})
    done = await uninstall(str(root))
    assert mine.exists() and (tmp_path / "empty").exists() and not done.files


async def test_the_record_of_a_tree_says_nothing_of_this_host(tmp_path: Path) -> None:
    """kernel.core_pattern would run a program of the tree's owner as root."""
    now = Path("/proc/sys", *TTL.split(".")).read_text().strip()
    record(tmp_path, {"files": {}, "dirs": [], "sysctls": {TTL: now}})
    assert (await uninstall(str(tmp_path))).sysctls == {}


async def test_a_root_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """It may lead to this host's own tree, by then or a moment later."""
    root, host = tmp_path / "root", tmp_path / "host"
    host.mkdir()
    root.symlink_to(host)
    slash = f"{root}/"  # as a shell completes it: open(2) follows the link then
    for work in (
        *(install("/srv/nodewright", one) for one in (str(root), slash)),
        *(uninstall(one) for one in (str(root), slash, str(tmp_path / "missing"))),
    ):
        with pytest.raises(Invalid):
            await work
    assert not list(host.iterdir())


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"files": 3}', '{"files": {"/etc": 1}}', json.dumps({"files": {"/a\0b": "x", "c": "x"}})]
)
async def test_a_record_that_is_none(tmp_path: Path, content: str) -> None:
    record(tmp_path, content)
    assert not (await uninstall(str(tmp_path))).files


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
async def test_what_is_in_the_place_of_a_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    await install("/srv/nodewright", str(tmp_path))
    (tmp_path / "usr/local/bin/kubelet").unlink()
    make(tmp_path / "usr/local/bin/kubelet")
    assert (await uninstall(str(tmp_path))).kept == ["/usr/local/bin/kubelet"]


async def test_a_root_without_proc_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run within a chroot, as tools that build images do."""
    paths: list[object] = []
    for name in ("open", "unlink", "replace", "rename"):
        real = getattr(os, name)

        def called(path: object, *more: Any, real: Any = real, **named: Any) -> Any:
            paths.append(path)
            return real(path, *more, **named)

        monkeypatch.setattr(os, name, called)
    await install("/srv/nodewright", str(tmp_path))
    monkeypatch.undo()
    assert paths and not [path for path in paths if str(path).startswith("/proc/self")]


async def test_an_old_kernel_installs_on_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux before 5.6, and old seccomp filters, refuse openat2. Only a tree of others needs it."""

    @dataclass
    class Refused:
        number: int

        def __call__(self, *given: object) -> int:
            raise OSError(self.number, os.strerror(self.number))

    for number in (errno.ENOSYS, errno.EPERM):
        monkeypatch.setattr("controlplane.host.edge.tree.openat2", Refused(number))
        with Tree("/") as host:
            host.write(f"{tmp_path}/new/file", "text", 0o600)
            assert host.content(f"{tmp_path}/new/file") == b"text"
        with pytest.raises(Invalid, match=r"5\.6"):
            await install("/srv/nodewright", str(tmp_path / f"other{number}"))
