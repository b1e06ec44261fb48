"""`install --root` and `uninstall --root` in a tree of another user, who may have put anything there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

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
    for work in (install("/srv/nodewright", str(root)), uninstall(str(root)), uninstall(str(tmp_path / "missing"))):
        with pytest.raises(Invalid):
            await work
    assert not list(host.iterdir())


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"files": 3}', '{"files": {"/etc": 1}}', json.dumps({"files": {"/a\0b": "x", "c": "x"}})]
)
async def test_a_record_that_is_none(tmp_path: Path, content: str) -> None:
    record(tmp_path, content)
    assert not (await uninstall(str(tmp_path))).files


async def test_a_pipe_in_the_place_of_a_file_is_not_read(tmp_path: Path) -> None:
    await install("/srv/nodewright", str(tmp_path))
    (tmp_path / "usr/local/bin/kubelet").unlink()
    os.mkfifo(tmp_path / "usr/local/bin/kubelet")
    assert (await uninstall(str(tmp_path))).kept == ["/usr/local/bin/kubelet"]
