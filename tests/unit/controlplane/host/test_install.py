"""`install` into a scratch root; `uninstall` leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane.host.plan import host_files
from controlplane.host.plan.package import files as packaged_files
from controlplane.host.work.install import install, uninstall
from nodelib.errors import Conflict


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


async def test_what_is_installed_can_be_taken_away(tmp_path: Path) -> None:
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    (tmp_path / "etc/systemd/system/other.service").write_text("")
    before = tree(tmp_path)
    await install("/srv/nodewright", str(tmp_path))
    assert (tmp_path / "usr/local/bin/kubelet").read_text().endswith('exec /srv/nodewright/bin/kubelet "$@"\n')
    assert (tmp_path / "usr/local/bin/kubelet").stat().st_mode & 0o777 == 0o755
    await install("/srv/nodewright", str(tmp_path))  # again: nothing is in the way of itself
    done = await uninstall(str(tmp_path))
    assert len(done.files) == len(host_files.host_files("")) and not done.kept
    assert tree(tmp_path) == before
    assert (await uninstall(str(tmp_path))).files == []


async def test_an_interpreter_that_is_named_serves_the_daemons(tmp_path: Path) -> None:
    """On a machine that cannot download, `pip` never ran: the packages lie where PYTHONPATH says."""
    await install("/srv/nodewright", str(tmp_path), {"NODEWRIGHT_PYTHON": "/usr/bin/python3", "PYTHONPATH": "/opt/a b"})
    lines = (tmp_path / "usr/local/bin/kubelet").read_text().splitlines()
    assert lines[1:3] == ["export NODEWRIGHT_PYTHON=/usr/bin/python3", "export PYTHONPATH='/opt/a b'"]


async def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    other = tmp_path / "usr/local/bin/kubelet"
    other.parent.mkdir(parents=True)
    other.write_text("upstream's")
    before = tree(tmp_path)
    with pytest.raises(Conflict, match="/usr/local/bin/kubelet"):
        await install("/srv/nodewright", str(tmp_path))
    assert tree(tmp_path) == before and other.read_text() == "upstream's"


async def test_what_was_changed_by_hand_is_kept(tmp_path: Path) -> None:
    await install("/srv/nodewright", str(tmp_path))
    (tmp_path / "etc/sysctl.d/99-nodewright.conf").write_text("mine\n")
    done = await uninstall(str(tmp_path))
    assert done.kept == ["/etc/sysctl.d/99-nodewright.conf"]
    assert tree(tmp_path) == {"etc", "etc/sysctl.d", "etc/sysctl.d/99-nodewright.conf"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_what_outlives_the_agent_outlives_its_unit() -> None:
    """It keeps the starts of containers from being cancelled (agent/runtime/edge/starts.py)."""
    kubelet = next(file.text for file in host_files.host_files("") if file.path.endswith("/kubelet.service"))
    assert "\nKillMode=process\n" in kubelet.partition("[Service]")[2].partition("[Install]")[0]


async def test_systemd_takes_the_units(tmp_path: Path) -> None:
    await install("/srv/nodewright", str(tmp_path))
    for name in ("kubelet.service", "nodewright-proxy.service"):
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", f"--root={tmp_path}", f"/etc/systemd/system/{name}"],
            capture_output=True,
            text=True,
        )
        complaints = [line for line in done.stderr.splitlines() if name in line and "target" not in line]
        assert complaints == [], done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(("name", "most"), [("kubelet.service", 66), ("nodewright-proxy.service", 32)])
def test_the_units_are_confined(tmp_path: Path, name: str, most: int) -> None:
    """The exposure that systemd counts, in tenths; 96 for both without the confinement."""
    for files in (host_files.host_files("/srv/nodewright"), packaged_files()):
        path = tmp_path / name
        path.write_text(next(one.text for one in files if one.path.endswith(f"/{name}")))
        done = subprocess.run(
            ["systemd-analyze", "security", "--no-pager", "--offline=true", f"--threshold={most}", str(path)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-600:]


def test_the_agent_s_end_ends_nothing_else() -> None:
    """What keeps the connection for starts open must outlive it (agent/runtime/edge/starts.py)."""
    text = next(one.text for one in host_files.host_files("/srv/nodewright") if one.path.endswith("/kubelet.service"))
    assert "\nKillMode=process\n" in text


class Killed(BaseException):
    pass


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """From now on the calls that change a tree end the program at the one with this number, as SIGKILL would: nothing
    that was to be done afterwards is done."""
    left = [step]

    def ending(call: Callable[..., object]) -> Callable[..., object]:
        def counted(*given: object, **named: object) -> object:
            left[0] -= 1
            if left[0] <= 0:
                raise Killed
            return call(*given, **named)

        return counted

    for name in ("replace", "unlink", "rmdir", "mkdir"):
        monkeypatch.setattr(os, name, ending(getattr(os, name)))


@pytest.mark.parametrize("before", [None, "/srv/older"], ids=["first", "upgrade"])
async def test_an_install_that_was_killed_anywhere_can_be_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """Of an upgrade it kept files of the older version as changed by hand, and of both what was half written."""
    for step in range(1, 60):
        root = tmp_path / str(step)
        root.mkdir()
        if before:
            await install(before, str(root))
        with monkeypatch.context() as patched:
            killed_at(patched, step)
            with contextlib.suppress(Killed):
                await install("/srv/nodewright", str(root))
                break
        assert not (await uninstall(str(root))).kept, step
        left = {one for one in tree(root) if (root / one).is_file()}
        assert left == set(), step
    assert step > 15


async def test_an_uninstall_that_was_killed_anywhere_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 90):
        root = tmp_path / str(step)
        root.mkdir()
        await install("/srv/nodewright", str(root))
        with monkeypatch.context() as patched:
            killed_at(patched, step)
            with contextlib.suppress(Killed):
                await uninstall(str(root))
                break
        done = await uninstall(str(root))
        assert not done.kept and tree(root) <= {"etc"}, step
    assert step > 25
