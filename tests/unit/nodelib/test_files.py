"""Files are replaced atomically."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodelib import files


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_as_a_whole_with_its_mode(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "checkpoint"
    for content, mode in (("old", 0o600), (b"new", 0o644)):
        files.replace(str(path), content, mode, durable=durable)
        assert path.stat().st_mode & 0o7777 == mode
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["checkpoint"]


def test_what_cannot_be_put_there_leaves_the_old_and_no_draft(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        files.replace(str(tmp_path / "taken"), "text")
    assert os.listdir(tmp_path) == ["taken"]
    with pytest.raises(FileNotFoundError):
        files.replace(str(tmp_path / "missing" / "file"), "text")


def test_holds(tmp_path: Path) -> None:
    assert not files.holds(str(tmp_path / "a"), "text")
    files.replace(str(tmp_path / "a"), "text")
    assert files.holds(str(tmp_path / "a"), b"text") and not files.holds(str(tmp_path / "a"), "texts")


def test_what_is_not_there_is_as_good_as_empty(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"a\xff")
    assert files.text_of(str(tmp_path / "none")) == "" == files.text_of(str(tmp_path))
    assert files.text_of(str(tmp_path / "odd")) == "a\ufffd"
