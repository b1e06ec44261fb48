"""A state root that has others' directories: /home, /, or one that a cluster's name leads out of by a link."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cli.display.steps import Display
from controlplane.cluster.edge import state
from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.work.down import down
from controlplane.up.request import Request
from controlplane.up.settle import settle
from nodelib.errors import Invalid


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NODEWRIGHT_STATE", str(tmp_path))
    return tmp_path


def saved(root: Path, name: str) -> Cluster:
    made = Cluster(name, "10.89.0.0/24", root=str(root))
    state.save(made)
    return made


def home_of(root: Path, name: str = "bob") -> Path:
    home = root / name
    (home / "pki").mkdir(parents=True)
    (home / "letter").write_text("dear")
    return home


def test_only_clusters_are_listed(root: Path) -> None:
    home_of(root)
    saved(root, "lab")
    (root / "linked").symlink_to(root / "lab")
    (root / "UPPER").mkdir()
    (root / "copy").mkdir()
    (root / "copy" / "cluster.json").write_text((root / "lab" / "cluster.json").read_text())
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "cluster.json")
    (root / "torn").mkdir()
    (root / "torn" / "cluster.json").write_text("{")
    assert state.clusters() == ["lab", "torn"]
    assert state.load("copy") is None, "its record leads to lab"


@pytest.mark.parametrize("record", [None, "{}", json.dumps({"name": "other"}), "[]"])
async def test_down_leaves_others_directories(root: Path, record: str | None) -> None:
    home = home_of(root)
    if record is not None:
        (home / "cluster.json").write_text(record)
    with pytest.raises(Invalid, match="not a directory of a cluster"):
        await down("bob", Display(plain=True))
    assert (home / "letter").read_text() == "dear"


async def test_down_follows_no_link(root: Path) -> None:
    home = home_of(root, "target")
    (home / "cluster.json").write_text(json.dumps(Cluster("lab", "10.89.0.0/24").to_json()))
    (root / "lab").symlink_to(home)
    with pytest.raises(Invalid, match="not a directory of a cluster"):
        await down("lab", Display(plain=True))
    assert (home / "letter").exists() and (root / "lab").is_symlink()


def test_up_makes_no_cluster_of_others_directories(root: Path) -> None:
    home = home_of(root)
    with pytest.raises(Invalid, match="not a directory of a cluster"):
        settle(Request("bob", Options(), frozenset()))
    assert sorted(os.listdir(home)) == ["letter", "pki"]


def test_a_record_of_another_user_is_none(root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("makes files of another user")
    made = saved(root, "lab")
    os.chown(made.dir, 1234, 1234)
    assert state.load("lab") is None and state.clusters() == []


@pytest.mark.parametrize("change", [{"subnet": 5}, {"options": 5}, {"options": {"nodes": "x"}}, {"subnet": "x"}])
def test_a_damaged_record_is_named(root: Path, change: dict[str, object]) -> None:
    made = saved(root, "lab")
    (root / "lab" / "cluster.json").write_text(json.dumps(made.to_json() | change))
    with pytest.raises(Invalid, match="cannot be read"):
        state.load("lab")
    assert state.clusters() == ["lab"], "`down` removes it"
