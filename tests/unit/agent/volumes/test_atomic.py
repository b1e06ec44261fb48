"""The files of a volume change all at once: a reader never finds none, or some of both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent.volumes.edge import atomic
from agent.volumes.model.volumes import FileProjection

_CHANGES = ("rename", "symlink", "unlink")  # what changes the names that a reader goes by


def files(text: str) -> dict[str, FileProjection]:
    return {name: FileProjection(text.encode(), 0o644) for name in ("a", "b/c")}


def shown(volume: Path) -> set[str]:
    return {(volume / name).read_text() for name in ("a", "b/c")}


def test_a_reader_sees_one_version_before_and_after_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atomic.write(str(tmp_path), files("old"))
    seen: list[set[str]] = []

    def watched(call: Any) -> Any:
        def change(*arguments: Any, **named: Any) -> Any:
            seen.append(shown(tmp_path))
            done = call(*arguments, **named)
            seen.append(shown(tmp_path))
            return done

        return change

    for name in _CHANGES:
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    assert atomic.write(str(tmp_path), files("new"))
    monkeypatch.undo()
    assert seen[0] == {"old"} and seen[-1] == shown(tmp_path) == {"new"}
    assert all(len(one) == 1 for one in seen)
