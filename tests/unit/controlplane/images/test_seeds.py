"""Which prepared containerd roots leave the cache, and locks whose files do."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from controlplane.images.edge.unused_seeds import KEPT, remove_unused
from controlplane.machine.edge.locks import cache_lock, unused

NOW = 1_800_000_000.0


def quiet(line: str) -> None:
    pass


def seed(folder: Path, name: str, used: float) -> Path:
    made = folder / name
    made.mkdir(parents=True)
    (made / "blob").write_text(name)
    (folder / f"{name}.lock").touch()
    for path in (made, folder / f"{name}.lock"):
        os.utime(path, (used, used))
    return made


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    seed(tmp_path / "seeds", "old", NOW - KEPT - 1)
    seed(tmp_path / "seeds", "young", NOW - KEPT + 60)
    return tmp_path / "seeds"


def test_a_seed_that_nobody_used_for_days_goes_and_its_clones_stay(seeds: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    os.link(seeds / "old" / "blob", clone)
    assert remove_unused(seeds, NOW) == ["old"]
    assert sorted(os.listdir(seeds)) == ["young", "young.lock"]
    assert clone.read_text() == "old"


def test_a_seed_that_is_being_cloned_stays(seeds: Path) -> None:
    with cache_lock(seeds / "old.lock", quiet, "busy", shared=True):
        os.utime(seeds / "old", (NOW - KEPT - 1, NOW - KEPT - 1))
        assert remove_unused(seeds, NOW) == []
    assert (seeds / "old" / "blob").exists()


def test_what_killed_runs_left_goes(seeds: Path) -> None:
    for name in (".work-x", ".gone-y", ".work-now"):
        used = NOW if name == ".work-now" else NOW - KEPT - 1
        seed(seeds, name, used)
        (seeds / f"{name}.lock").unlink()
    (seeds / "left.lock").touch()
    os.utime(seeds / "left.lock", (1, 1))
    remove_unused(seeds, NOW)
    assert sorted(os.listdir(seeds)) == [".work-now", "young", "young.lock"]


def test_who_waits_for_a_lock_whose_file_goes_has_the_next_one(tmp_path: Path) -> None:
    """Else a third run, which finds no file and makes one, would hold the same lock beside it."""
    lock, waits, has, done = tmp_path / "lock", threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        with cache_lock(lock, lambda line: waits.set(), "busy"):
            has.set()
            done.wait(30)

    thread = threading.Thread(target=other)
    with unused(lock) as ours:
        thread.start()
        assert ours and waits.wait(30)
    assert has.wait(30)
    with unused(lock) as ours:
        assert not ours
    assert lock.exists()
    done.set()
    thread.join(30)


def test_users_share_a_lock(tmp_path: Path) -> None:
    said: list[str] = []
    with cache_lock(tmp_path / "l", said.append, "busy", shared=True):
        with cache_lock(tmp_path / "l", said.append, "busy", shared=True):
            pass
        with unused(tmp_path / "l") as ours:
            assert not ours
    assert said == []


def test_a_seed_that_cannot_be_removed_stays_and_fails_nobody(seeds: Path) -> None:
    for name in ("old-1", "old-2"):
        seed(seeds, name, NOW - KEPT - 1)
    (seeds / ".gone-old-1").touch()  # its other name is taken, by what is no folder
    os.utime(seeds / "old-1", (NOW - KEPT - 1,) * 2)
    assert remove_unused(seeds, NOW) == ["old-2", "old"]
    assert (seeds / "old-1").is_dir()
