"""The record of a cluster whose first `up` failed: which options a second one has."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.cluster.model import Options
from controlplane.up.request import Request
from controlplane.up.settle import settle

SUBNET = "10.251.7.0/24"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NODEWRIGHT_STATE", str(tmp_path))
    return tmp_path


def asked(*given: str, **options: object) -> Request:
    return Request("tsettle", Options(**options), frozenset({*given, *options}), SUBNET)  # type: ignore[arg-type]


def test_what_could_not_be_built_need_not_be_built_for_ever() -> None:
    settle(asked(storage=True, addons="ingress"))
    again = settle(asked("nodes", nodes=3))
    assert (again.options, again.subnet) == (Options(nodes=3), SUBNET)


def test_without_options_it_goes_on_with_those_of_the_first_time() -> None:
    settle(asked(storage=True))
    assert settle(asked()).options == Options(storage=True)


@pytest.mark.parametrize("made", ["pki", "node1"])
def test_a_cluster_that_has_more_than_its_record_keeps_its_options(made: str, root: Path) -> None:
    settle(asked(storage=True))
    (root / "tsettle" / made).mkdir()
    assert settle(asked(nodes=3)).options == Options(storage=True, nodes=3)
