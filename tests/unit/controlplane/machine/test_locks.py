"""Who holds the lock on a directory, seen without trying it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controlplane.machine.edge.locks import directory_lock, is_held
from nodelib.errors import NotFound


def test_a_held_lock_is_seen_and_not_disturbed(tmp_path: Path) -> None:
    assert not is_held(str(tmp_path))
    assert not is_held(str(tmp_path / "none"))
    with directory_lock(str(tmp_path)):
        assert is_held(str(tmp_path))
        assert not is_held(str(tmp_path.parent))
    assert not is_held(str(tmp_path))


def test_a_cluster_that_was_removed_meanwhile_is_not_made_again(tmp_path: Path) -> None:
    """`stop`, `addons remove` and `node remove` beside a `down` that was faster."""
    with pytest.raises(NotFound), directory_lock(str(tmp_path / "lab"), make=False):
        pass
    assert os.listdir(tmp_path) == []
    with directory_lock(str(tmp_path / "lab")):
        assert os.listdir(tmp_path) == ["lab"]
