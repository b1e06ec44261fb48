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
    cache = cache.rename(cache.parent / "nodewright")
    (cache / "photos").mkdir()
    done = purge(cache, "--yes")
    assert f"kept {cache}: it holds photos" in done.output and os.listdir(cache) == ["photos"]


def test_a_directory_of_others_is_left_whole(cache: Path) -> None:
    """NODEWRIGHT_CACHE=/usr/local: its bin has our name and is not ours."""
    (cache / "share").mkdir()
    before = sorted(os.listdir(cache))
    done = purge(cache, "--yes")
    assert done.exit_code == 1 and "it also holds share" in done.stderr
    assert sorted(os.listdir(cache)) == before and (cache / "bin/kube-1/kube").exists()


def test_a_checkout_is_no_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache.rename(cache.parent / "nodewright")
    monkeypatch.setattr("cli.commands.purge.PROJECT", cache)
    assert "the project itself" in purge(cache, "--yes").stderr and (cache / "bin").is_dir()


def test_the_list_of_packages_is_data(cache: Path) -> None:
    (cache / "debian-packages").write_text("socat\n$(id) `id` ;id --purge \x1b[2J\n" + "x" * (1 << 20))
    done = purge(cache, "--yes")
    assert "apt-get remove socat\n" in done.output


def test_nothing_goes_without_an_answer(cache: Path) -> None:
    done = purge(cache)
    assert done.exit_code == 1 and "Add --yes." in done.stderr
    assert (cache / "venv/abc/bin/python").exists() and f"{cache}/images" in done.output


def test_nothing_goes_while_a_cluster_uses_it(cache: Path) -> None:
    for part in ("ns", "pki"):
        (cache.parent / "state" / "lab" / part).mkdir(parents=True)
    done = purge(cache, "--yes")
    assert done.exit_code == 1 and "sudo ./nodewright down --name lab" in done.stderr
    assert (cache / "bin/kube-1/kube").exists()
