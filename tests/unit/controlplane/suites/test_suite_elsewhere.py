"""Upstream's suite against a cluster that this project did not make: by a kubeconfig, its nodes left alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.progress import Say
from controlplane.suites.work import conformance
from controlplane.suites.work.elsewhere import run_elsewhere
from nodelib.errors import NodewrightError, NotFound

_SUITE = """#!/bin/sh
for word; do
  echo "$word" >>"$0.asked"
  case $word in --report-dir=*) folder=${word#*=} ;; esac
done
cat >"$folder/junit_01.xml" <<'END'
<testsuites><testsuite>
<testcase name="[It] [sig-node] Pods run" status="passed" time="1.5"></testcase>
</testsuite></testsuites>
END
"""


class Silent:
    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Say]:
        yield lambda detail: None


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """In place of built ones: ginkgo writes down what it is asked, and reports one test."""
    (tmp_path / "kind.conf").touch()
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in conformance.BINARIES:
        (folder / name).write_text(_SUITE if name == "ginkgo" else "#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    return folder


def _server_says(programs: Path, version: str) -> None:
    said = json.dumps({"serverVersion": {"gitVersion": version}})
    (programs / "kubectl").write_text(f'#!/bin/sh\necho "$@" >"$0.asked"\necho \'{said}\'\n')


def _run(programs: Path, kubeconfig: Path, **order: str) -> list[str]:
    """What ginkgo was asked."""
    asked = conformance.Order(**{"tier": "smoke", **order}, results=programs / "results", binaries_dir=programs)  # type: ignore[arg-type] # words only
    report = asyncio.run(run_elsewhere(kubeconfig, asked, Silent()))
    assert [(one.name, one.outcome) for one in report.results] == [("[sig-node] Pods run", "passed")]
    return (programs / "ginkgo.asked").read_text().splitlines()


def test_the_suite_gets_the_kubeconfig_and_the_choice_of_the_tier(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _server_says(programs, "v1.37.1")
    asked = _run(programs, Path("kind.conf"))
    # ginkgo's processes run in a folder of their own.
    assert f"--kubeconfig={tmp_path}/kind.conf" in asked
    (focus,) = (word for word in asked if word.startswith("--focus="))
    assert "should get a host IP" in focus and not [word for word in asked if word.startswith("--skip=")]
    assert f"{tmp_path}/kind.conf" in (programs / "kubectl.asked").read_text()
    assert json.loads((programs / "results/results.json").read_text())["status"] == 0


@pytest.mark.parametrize("version", ["v1.36.4", "v1.36.4-gke.100", "v1.36.4+k3s1"])
def test_an_older_cluster_is_not_asked_for_newer_features(programs: Path, tmp_path: Path, version: str) -> None:
    _server_says(programs, version)
    assert r"--skip=\[MinimumKubeletVersion:1\.(37)\]" in _run(programs, tmp_path / "kind.conf", tier="dev")


def test_a_cluster_that_does_not_answer_is_named(programs: Path, tmp_path: Path) -> None:
    with pytest.raises(NodewrightError) as raised:
        _run(programs, tmp_path / "kind.conf")
    assert f"{tmp_path}/kind.conf" in str(raised.value)
    assert not (programs / "ginkgo.asked").exists()


def test_a_file_that_is_not_there_is_named_before_anything_is_built(programs: Path, tmp_path: Path) -> None:
    # kubectl would take it for an empty one, and ask a cluster on this machine.
    _server_says(programs, "v1.37.1")
    with pytest.raises(NotFound) as raised:
        _run(programs, tmp_path / "other.conf")
    assert f"{tmp_path}/other.conf" in str(raised.value)
