"""What is configured reaches the parts that obey it."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

import agent
from agent import settings
from agent.build import derive
from agent.config.parse import parse
from nodelib.daemons import log


def test_the_cgroup_policy_is_what_was_configured(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "cgroupRoot: /kube\ncgroupDriver: systemd\ncgroupsPerQOS: true\nfailCgroupV1: true\n"
        "cpuCFSQuota: false\ncpuCFSQuotaPeriod: 50ms\npodPidsLimit: 99\n"
    )
    policy = parse([f"--config={file}"], hostname="n").cgroups.pods
    assert (policy.root, policy.driver, policy.per_qos, policy.fail_v1) == ("/kube", "systemd", True, True)
    assert (policy.cpu_quota, policy.cpu_period, policy.pids) == (False, 50_000, 99)


@pytest.mark.parametrize(
    ("lines", "kubepods"),
    [
        pytest.param("cgroupRoot: /a/b\n", "/a/b/kubepods", id="cgroupfs"),
        pytest.param("cgroupDriver: systemd\n", "/kubepods.slice", id="systemd"),
        pytest.param("cgroupDriver: systemd\ncgroupRoot: /a\n", "/a.slice/a-kubepods.slice", id="systemd-below"),
        pytest.param("cgroupsPerQOS: false\nenforceNodeAllocatable: []\n", "/", id="pods-without-cgroups"),
    ],
)
def test_stats_of_pods_are_read_where_their_cgroups_are(tmp_path: Path, lines: str, kubepods: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{lines}")
    assert derive.stats_settings(parse([f"--config={file}"], hostname="n")).kubepods == kubepods


@pytest.mark.parametrize(("gates", "expect"), [("", 4096), ("HugepageAwareEviction=false", 0)])
def test_huge_pages_are_left_out_unless_their_gate_is_off(gates: str, expect: int) -> None:
    settings = parse([f"--feature-gates={gates}"], hostname="n")
    assert derive.stats_settings(settings, 4096).huge_pages == expect


def test_every_setting_is_read_by_somebody() -> None:
    """A setting that nobody reads is silently not obeyed: its field needs an `instead` in the schema."""
    read: set[str] = set()
    folder = Path(agent.__file__).parent
    for path in (*folder.rglob("*.py"), Path(log.__file__)):  # which reads LogOptions
        if path.name != "settings.py":
            nodes = ast.walk(ast.parse(path.read_text()))
            read |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    kinds = [kind for kind in vars(settings).values() if dataclasses.is_dataclass(kind) and isinstance(kind, type)]
    unread = {f"{kind.__name__}.{field.name}" for kind in kinds for field in dataclasses.fields(kind)}
    assert {name for name in unread if name.partition(".")[2] not in read} == set()
