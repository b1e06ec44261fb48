"""A release is the same when it is made twice, and raises a cluster without source tree, compiler or internet."""

from __future__ import annotations

import filecmp
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from controlplane.release.plan.wheel import LIMIT
from tests.cluster.command_line import PROJECT

# Compressing the programs and images takes four minutes on two cores if it was not done before.
pytestmark = [pytest.mark.cluster, pytest.mark.soak]
NAME = "trelease"


def done(
    *argv: str | Path, status: int = 0, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command in an environment of its own, which must end like this."""
    own = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": os.environ["HOME"], "LC_ALL": "C.UTF-8"}
    found = subprocess.run(
        list(map(str, argv)), capture_output=True, text=True, timeout=1500, env={**own, **(environment or {})}, cwd="/"
    )
    assert found.returncode == status, f"{argv}\n{found.stdout}\n{found.stderr}"
    return found


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release of what is committed, made in a clone: changes of this tree are no part of it."""
    clone, target = tmp_path_factory.mktemp("clone") / "tree", tmp_path_factory.mktemp("dist")
    done("git", "clone", "--quiet", PROJECT, clone)
    for folder in (target / "a", target / "b"):
        environment = {**os.environ, "PYTHONPATH": str(clone)}
        done(sys.executable, "-m", "cli", "release", folder, environment=environment)
    return target


def test_two_releases_of_a_commit_are_the_same(dist: Path) -> None:
    names = sorted(path.name for path in (dist / "a").iterdir())
    assert names == sorted(path.name for path in (dist / "b").iterdir())
    assert filecmp.cmpfiles(dist / "a", dist / "b", names, shallow=False) == (names, [], [])
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=dist / "a", check=True)


def test_the_files_are_what_an_index_takes(dist: Path) -> None:
    wheels = list((dist / "a").glob("*.whl"))
    assert {path.name: path.stat().st_size for path in wheels if path.stat().st_size >= LIMIT} == {}
    sums = (dist / "a" / "SHA256SUMS").read_text().splitlines()
    assert len(sums) == len(list((dist / "a").iterdir())) - 1
    parts = json.loads(next((dist / "a").glob("*.cdx.json")).read_text())["components"]
    kinds = {
        kind: [one for one in parts if one["purl"].startswith(f"pkg:{kind}/")] for kind in ("golang", "pypi", "deb")
    }
    assert all(len(found) > 20 for found in kinds.values())
    assert "pkg:golang/k8s.io/kubernetes@v1.37.1" in {one["purl"] for one in parts}


@pytest.fixture(scope="module")
def program(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """`nodewright` as pip installs it from the release, with a cache and clusters of its own."""
    base = tmp_path_factory.mktemp("installed")
    done(sys.executable, "-m", "venv", base / "venv")
    pip: list[str | Path] = [base / "venv/bin/pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
    done(*pip, "--find-links", dist / "a", "nodewright", "nodewright-binaries")
    environment = {"NODEWRIGHT_CACHE": str(base / "cache"), "KUBECONFIG": str(base / "kubeconfig")}
    yield base / "venv/bin/nodewright", environment
    done(base / "venv/bin/nodewright", "down", "--name", NAME, environment=environment)


def test_an_installed_release_raises_a_cluster_and_builds_nothing(program: tuple[Path, dict[str, str]]) -> None:
    nodewright, environment = program
    raised = done(nodewright, "up", "--plain", "--name", NAME, environment=environment)
    assert "unpacking 5 programs of release" in raised.stderr and "building" not in raised.stderr
    assert "DNS" in raised.stdout and "answered by" in raised.stdout
    assert "./nodewright" not in raised.stdout, "there is no such file"
    nodes = done(nodewright, "kubectl", "--name", NAME, "--", "get", "nodes", "-o", "name", environment=environment)
    assert nodes.stdout.split() == ["node/node1", "node/node2"]


def test_a_program_that_broke_is_unpacked_again(program: tuple[Path, dict[str, str]]) -> None:
    nodewright, environment = program
    kubectl = next(Path(environment["NODEWRIGHT_CACHE"], "bin").glob("*/kubectl"))
    size = kubectl.stat().st_size
    os.truncate(kubectl, 1000)
    again = done(nodewright, "up", "--plain", "--name", NAME, environment=environment)
    assert "unpacking 1 programs of release" in again.stderr
    assert kubectl.stat().st_size == size


def test_what_needs_the_source_tree_says_so(program: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    nodewright, environment = program
    for words in (("test", "lint"), ("package", str(tmp_path)), ("payload", str(tmp_path)), ("release", str(tmp_path))):
        refused = done(nodewright, *words, status=1, environment=environment)
        assert "needs nodewright's source tree" in refused.stderr and "Clone the repository" in refused.stderr
    assert list(tmp_path.iterdir()) == []
