"""The smoke tier of upstream's conformance suite, against a cluster of our own that is removed in the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.command_line import cli

pytestmark = [pytest.mark.conformance, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

NAME = "tsmoke"


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    cli("down", "--name", NAME, "--plain")
    cli("up", "--name", NAME, "--no-uplink", "--no-demo", "--images", "conformance", "--plain", timeout=3600)
    yield NAME
    cli("down", "--name", NAME, "--plain")


def test_the_smoke_tier_passes(cluster: str, tmp_path: Path) -> None:
    arguments = (
        "conformance",
        "--name",
        cluster,
        "--tier",
        "smoke",
        "--procs",
        "4",
        "--results",
        str(tmp_path),
        "--plain",
    )
    done = cli(*arguments, check=False, timeout=1800)
    report = json.loads((tmp_path / "results.json").read_text())
    failed = {result["name"]: result["reason"] for result in report["results"] if result["outcome"] == "failed"}
    assert failed == {}, done.stdout
    assert len(report["results"]) == 7
    assert done.returncode == 0
    assert list(tmp_path.glob("junit*.xml"))


def test_a_dry_run_lists_the_tier(cluster: str, tmp_path: Path) -> None:
    listed = cli("conformance", "--name", cluster, "--dry-run", "--results", str(tmp_path), "--plain").stdout
    assert "7 tests" in listed
    assert "should get a host IP" in listed
