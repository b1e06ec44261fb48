"""Two workers of the cluster tier: the lock that they share, their names, what is left when they are interrupted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cluster import command_line, side_by_side
from tests.cluster.command_line import RAISED
from tests.cluster.side_by_side import held, is_free, remove_left_over, shared_name, take_down_raised


def test_workers_of_one_run_share_the_lock_and_another_run_does_not_get_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert is_free(lock)
    with held("one", lock) as first, held("one", lock) as second:
        assert (first, second) == (True, False)
        assert not is_free(lock)
        with pytest.raises(BlockingIOError), held("two", lock):
            pass
    assert is_free(lock)
    with held("two", lock) as first:
        assert first


def test_the_lock_is_held_until_the_last_worker_has_ended(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with held("one", lock):
        with held("one", lock):
            pass
        assert not is_free(lock)
        with pytest.raises(BlockingIOError), held("two", lock):
            pass


def test_each_worker_has_a_cluster_and_without_workers_it_has_the_name_of_the_first() -> None:
    assert [shared_name(worker) for worker in ("master", "gw0", "gw1", "gw2")] == ["tres", "tres", "tres2", "tres3"]


@pytest.mark.parametrize(("workers", "left"), [(1, ["tres"]), (2, ["tres", "tres2"]), (3, ["tres", "tres2", "tres3"])])
def test_only_clusters_of_no_worker_are_left_over(
    workers: int, left: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker took down what the second was about to raise, if a killed run had left one of that name."""
    for name in ("tres", "tres2", "tres3"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(side_by_side, "STATE", tmp_path)
    monkeypatch.setattr(side_by_side, "cli", Commands(tmp_path, {}))
    remove_left_over(workers)
    assert sorted(path.name for path in tmp_path.iterdir()) == left


class Commands:
    """In place of `nodewright`: `down` removes a cluster's folder, but not while an `up` of it is under way."""

    def __init__(self, state: Path, busy: dict[str, int]) -> None:
        self.state, self.busy = state, busy

    def __call__(self, word: str, _option: str, name: str, *_words: str, check: bool = True) -> object:
        assert word == "down"
        self.busy[name] = self.busy.get(name, 0) - 1
        if self.busy[name] < 0:
            (self.state / name).rmdir()
        return subprocess.CompletedProcess([], int(self.busy[name] >= 0))


def test_an_interrupted_run_takes_down_what_its_workers_have_raised_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, raised = tmp_path / "state", tmp_path / "raised"
    raised.mkdir()
    for name in ("tres", "mine"):
        (state / name).mkdir(parents=True)
    monkeypatch.setattr(command_line, "STATE", state)
    monkeypatch.setattr(side_by_side, "STATE", state)
    monkeypatch.setattr(side_by_side, "cli", Commands(state, {"tres2": 1}))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    monkeypatch.setattr(subprocess, "Popen", lambda *_arguments, **_words: None)
    monkeypatch.setenv(RAISED, str(raised))
    (state / "tres").rmdir()
    command_line.start("up", "--name", "tres", "--plain")
    command_line.start("up", "--name", "tres2", "--plain")
    command_line.start("up", "--name", "tfile", "--plain")
    command_line.start("up", "--name", "mine", "--plain")  # a lent one is there already
    command_line.start("status", "--name", "other")
    for name in ("tres", "tres2", "other"):  # tfile has been taken down by its test
        (state / name).mkdir()
    assert take_down_raised() == ["tres", "tres2"]
    assert sorted(path.name for path in state.iterdir()) == ["mine", "other"]
