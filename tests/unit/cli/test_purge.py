"""`uninstall --purge`: shows what goes, and removes what is nodewright's and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from controlplane.host.plan.host_files import RECORD

pytestmark = pytest.mark.skipif(Path(RECORD).exists(), reason="nodewright is installed on this host")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    for name in ("venv/abc/bin/python", "bin/kube-1/kube", "images/one.tar"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("x" * 3_000_000)
    (folder / "debian-packages").write_text("conntrack\nsocat\nconntrack\n")
    (folder / "bin" / "link").symlink_to(tmp_path)
    return folder


def purge(cache: Path, *words: str) -> Result:
    here = {"NODEWRIGHT_CACHE": str(cache), "NODEWRIGHT_STATE": str(cache.parent / "state")}
    return CliRunner().invoke(app, ["uninstall", "--purge", *words], env=here)


def test_it_shows_what_goes_and_removes_it(cache: Path) -> None:
    done = purge(cache, "--yes")
    assert done.exit_code == 0, done.output
    shown, removed = done.output.index(f"{cache}/venv  3 MB: Python environments"), done.output.index("removed ")
    assert shown < removed and not cache.exists() and cache.parent.exists()
    assert "apt-get remove conntrack socat" in done.output
    assert "Nothing to remove" in purge(cache, "--yes").output


def test_what_is_not_ours_stays(cache: Path) -> None:
    (cache / "photos").mkdir()
    done = purge(cache, "--yes")
    assert f"kept {cache}: it holds photos" in done.output and os.listdir(cache) == ["photos"]


def test_nothing_goes_without_an_answer(cache: Path) -> None:
    done = purge(cache)
    assert done.exit_code == 1 and "Add --yes." in done.stderr
    assert (cache / "venv/abc/bin/python").exists() and f"{cache}/images" in done.output


def test_nothing_goes_while_a_cluster_uses_it(cache: Path) -> None:
    (cache.parent / "state" / "lab").mkdir(parents=True)
    done = purge(cache, "--yes")
    assert done.exit_code == 1 and "sudo ./nodewright down --name lab" in done.stderr
    assert (cache / "bin/kube-1/kube").exists()
