"""Which release `up` takes the programs from, and when it refuses one."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.prebuilt import edge
from controlplane.prebuilt.edge import in_folder
from controlplane.up.releases import ReleaseChoice, choose
from nodelib.errors import Invalid, NotFound
from tests.unit.controlplane.prebuilt.releases import NEEDED, VERSION, manifest, write


@pytest.fixture
def fits(tmp_path: Path) -> Path:
    write(tmp_path / "fits", manifest(*NEEDED))
    return tmp_path / "fits"


@pytest.fixture
def differs(tmp_path: Path) -> Path:
    """A release without the control plane of this version."""
    write(tmp_path / "differs", manifest(*NEEDED[1:]))
    return tmp_path / "differs"


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "installed", lambda: None)


def test_the_release_that_the_user_names_is_used_and_said(fits: Path) -> None:
    said: list[str] = []
    found = choose(ReleaseChoice(fits, "1.0"), None, said.append)
    assert found and found.manifest.version == VERSION
    assert said == [f"of release {VERSION} in {fits}"]


def test_a_named_release_that_does_not_fit_is_refused(differs: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"are not those of 1\.0") as refusal:
        choose(ReleaseChoice(differs, "1.0"), None, lambda line: None)
    assert "nodewright-binaries==1.0" in refusal.value.action
    with pytest.raises(NotFound, match="is in it"):
        choose(ReleaseChoice(tmp_path / "gone", "1.0"), None, lambda line: None)


def test_without_a_release_programs_are_built(fits: Path) -> None:
    said: list[str] = []
    assert choose(ReleaseChoice(None, "1.0"), None, said.append) is None
    assert choose(ReleaseChoice(fits, "1.0"), Path("/opt/bin"), said.append) is None, "--binaries comes first"
    assert said == []


def test_an_installed_release_that_does_not_fit(differs: Path, fits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "installed", lambda: in_folder(differs))
    said: list[str] = []
    assert choose(ReleaseChoice(None, "1.0", checkout=True), None, said.append) is None
    assert len(said) == 1 and said[0].startswith("not of the installed release: release 9.9.9 in")
    with pytest.raises(Invalid, match=r"does not fit nodewright 1\.0"):
        choose(ReleaseChoice(None, "1.0", checkout=False), None, said.append)
    assert choose(ReleaseChoice(fits, "1.0", checkout=False), None, said.append), "a named one comes first"
