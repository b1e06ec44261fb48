"""How e2e_node.test is called, and what is in its folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from controlplane.machine.edge.namespaces import in_cgroups, in_node
from controlplane.suites.plan import node_suite as plan
from controlplane.suites.plan.conformance import Selection
from controlplane.supervisor.model import Program


@pytest.mark.parametrize(
    ("labels", "focus", "setup", "wanted"),
    [
        ("", "", plan.Setup.WITH_API, Selection(labels="NodeConformance && !Serial && !Flaky")),
        ("", "MirrorPod", plan.Setup.WITH_API, Selection(focus="MirrorPod")),
        ("Serial", "Mirror", plan.Setup.WITH_API, Selection(focus="Mirror", labels="Serial")),
        ("", "", plan.Setup.STANDALONE, Selection(labels="Feature: containsAny StandaloneMode")),
        (
            "",
            "",
            plan.Setup.CRI_PROXY,
            Selection(labels="Feature: containsAny CriProxy && !(Feature: containsAny OffByDefault)"),
        ),
    ],
    ids=["all", "one by name", "both", "standalone", "faulty runtime"],
)
def test_what_is_run(labels: str, focus: str, setup: plan.Setup, wanted: Selection) -> None:
    assert plan.selection(labels, focus, "", setup) == wanted


def test_the_file_called_kubelet_becomes_the_agent_with_the_suites_flags(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = tmp_path_factory.mktemp("suite") / "kubelet"
    command = ("printf", "%s|")
    file.write_text(plan.kubelet_script(command, {"PATH": "/usr/bin:/bin", "WORDS": "two words"}))
    file.chmod(0o755)
    done = subprocess.run([file, "--v", "4", "--node-labels=a b"], capture_output=True, text=True, check=True)
    assert done.stdout == "--v|4|--node-labels=a b|"


def test_the_command_enters_the_node_and_its_cgroup_before_the_suite() -> None:
    command = plan.arguments(
        Selection(labels="X"),
        ginkgo="/g",
        folder="/n/suite",
        results="/r",
        procs=3,
        setup=plan.Setup.STANDALONE,
        runtime_cgroup="/c/runtime",
    )
    assert command[:2] == ["/g", "--procs=3"]
    # The suite gives --runtime-cgroups too, of a cgroup that is not there: ours comes after it.
    (flags,) = [word for word in command if word.startswith("--kubelet-flags=")]
    assert flags.endswith(" --system-cgroups= --kubelet-cgroups= --runtime-cgroups=/c/runtime")
    assert "--standalone-mode=true" in command and "--label-filter=X" in command
    line = in_cgroups(["/c/cpu", "/c/pids"], in_node({"net": "/n", "mnt": "/m"}, plan.from_folder(command, "/n/suite")))
    assert line[:2] == ["/bin/sh", "-c"] and "/c/cpu /c/pids" in line
    assert line[line.index("--net=/n") + 1] == "--mount=/m"
    assert line[-len(command) :] == command
    assert json.loads(plan.kubelet_config())["cgroupRoot"] == "/"


def test_names_alone_need_no_node() -> None:
    command = plan.listing(Selection(labels="Serial", focus="Eviction"), ginkgo="/g", suite="/e2e_node.test")
    assert command[0] == "/g" and command[-3:] == ["--dry-run", "-v", "/e2e_node.test"]
    assert "--label-filter=Serial" in command and "--focus=Eviction" in command


def test_containerd_joins_its_cgroup_and_says_its_pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, joined = tmp_path / "run" / "containerd.pid", [tmp_path / "cpu", tmp_path / "memory"]
    for folder in joined:
        folder.mkdir()
    monkeypatch.setattr(plan, "PID_FILE", str(said))
    program = plan.in_own_cgroup(
        Program("containerd", ("/bin/echo", "two words"), "/log"), [str(folder) for folder in joined]
    )
    done = subprocess.run(program.argv, capture_output=True, text=True, check=True)
    assert done.stdout == "two words\n"
    assert {(folder / "cgroup.procs").read_text().strip() for folder in joined} == {said.read_text()}
