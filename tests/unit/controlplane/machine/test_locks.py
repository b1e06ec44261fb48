"""Who holds the lock on a directory, seen without trying it."""

from __future__ import annotations

from pathlib import Path

from controlplane.machine.edge.locks import directory_lock, is_held


def test_a_held_lock_is_seen_and_not_disturbed(tmp_path: Path) -> None:
    assert not is_held(str(tmp_path))
    assert not is_held(str(tmp_path / "none"))
    with directory_lock(str(tmp_path)):
        assert is_held(str(tmp_path))
        assert not is_held(str(tmp_path.parent))
    assert not is_held(str(tmp_path))
