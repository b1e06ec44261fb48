"""`nodewright --version` and `nodewright version`: pyproject.toml is the only source of ours."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import versions
from cli.app import app
from cli.project import PROJECT
from nodelib.version import KUBERNETES_VERSION


@pytest.mark.parametrize("arguments", [["--version"], ["version"]], ids=" ".join)
def test_the_versions_are_shown(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "commit", lambda: "abc1234")
    done = CliRunner().invoke(app, arguments)
    ours = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        f"nodewright {ours} (commit abc1234)",
        f"Kubernetes {KUBERNETES_VERSION.removeprefix('v')}",
        f"containerd {_required('cluster', 'github.com/containerd/containerd/v2')}",
        f"CoreDNS {_required('cluster', 'github.com/coredns/coredns')}",
        f"Python {platform.python_version()}",
    ]


def _required(folder: str, module: str) -> str:
    """The version of a module in a go.mod."""
    words = (PROJECT / "controlplane" / "go" / folder / "go.mod").read_text().split()
    return words[words.index(module) + 1].removeprefix("v")


def test_scripts_read_the_versions_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "commit", lambda: "abc1234")
    done = CliRunner().invoke(app, ["version", "-o", "json"])
    assert done.exit_code == 0
    found = json.loads(done.output)
    assert found == {
        "nodewright": versions.release(),
        "commit": "abc1234",
        "kubernetes": KUBERNETES_VERSION.removeprefix("v"),
        "containerd": _required("cluster", "github.com/containerd/containerd/v2"),
        "coredns": _required("cluster", "github.com/coredns/coredns"),
        "python": platform.python_version(),
    }


def test_a_module_that_nothing_requires_has_no_version(tmp_path: Path) -> None:
    assert versions.built("example.test/none", tmp_path) == "unknown"


def test_no_commit_is_shown_outside_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "commit", lambda: "")
    assert versions.lines()[0] == f"nodewright {versions.release()}"


def test_an_installed_distribution_knows_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", {"nodewright": "9.8.7"}.__getitem__)
    assert versions.release(tmp_path) == "9.8.7"


def test_without_any_source_the_version_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert versions.release(tmp_path) == "unknown"


def test_the_commit_is_that_of_the_checkout(tmp_path: Path) -> None:
    assert versions.commit(tmp_path) == ""
    identity = ("-c", "user.name=n", "-c", "user.email=e")
    for command in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    assert re.fullmatch(r"[0-9a-f]{7,}", versions.commit(tmp_path))


def test_no_module_repeats_the_version() -> None:
    ours = versions.release()
    assert ours not in ("", "unknown")
    assert [path for path in (PROJECT / "cli").rglob("*.py") if ours in path.read_text()] == []
