"""Runs of upstream's suite on one cluster: none takes the results of another one for its own, or its place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.machine.edge.locks import directory_lock
from controlplane.progress import Say
from controlplane.suites.work import conformance
from nodelib.errors import Conflict

REPORT = "junit_01.xml"


class Silent:
    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Say]:
        yield lambda detail: None


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """With a suite that ends at once."""
    suite = tmp_path / "suite"
    suite.write_text("#!/bin/sh\nexit 0\n")
    suite.chmod(0o755)

    async def prepared(*_: object) -> tuple[dict[str, str], Mapping[str, Path]]:
        return dict.fromkeys(conformance.BINARIES, str(suite)), {}

    monkeypatch.setattr(conformance, "_prepare", prepared)
    return Cluster("lab", "10.89.3.0/24", Options(nodes=1), root=str(tmp_path))


async def test_a_second_run_is_refused_and_the_reports_of_the_first_stay(cluster: Cluster) -> None:
    folder = Path(cluster.dir, "conformance")
    folder.mkdir(parents=True)
    (folder / REPORT).write_text("the first run's")
    with directory_lock(str(folder)), pytest.raises(Conflict, match="another run"):
        await conformance.run(cluster, conformance.Order("smoke"), Silent())
    assert (folder / REPORT).read_text() == "the first run's"


async def test_the_list_of_tests_disturbs_no_run(cluster: Cluster) -> None:
    folder = Path(cluster.dir, "conformance")
    folder.mkdir(parents=True)
    (folder / REPORT).write_text("the first run's")
    with directory_lock(str(folder)):
        listed = await conformance.run(cluster, conformance.Order("smoke", dry_run=True), Silent())
    assert listed.status == 0 and listed.directory != folder
    assert [one.name for one in folder.iterdir()] == [REPORT]
