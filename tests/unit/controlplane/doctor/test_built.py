"""What `doctor` asks of the disk, and whether of Go, depends on whether something has to be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.doctor.work import is_built
from tests.unit.controlplane.prebuilt.releases import NEEDED, manifest, write


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWRIGHT_CACHE", str(tmp_path / "cache"))


def test_nothing_is_built_with_a_release(tmp_path: Path) -> None:
    assert not is_built(None, None)
    write(tmp_path / "dist", manifest(*NEEDED))
    assert is_built(None, tmp_path / "dist")


def test_a_release_that_lacks_a_program_or_is_damaged_is_no_help(tmp_path: Path) -> None:
    assert not is_built(None, tmp_path / "gone")
    write(tmp_path / "some", manifest(*NEEDED[1:]))
    assert not is_built(None, tmp_path / "some")
    write(tmp_path / "bad", manifest(*NEEDED), text="{}")
    assert not is_built(None, tmp_path / "bad")
