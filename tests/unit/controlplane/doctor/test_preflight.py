"""What each fact of the machine is judged to be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.doctor.model import Machine
from controlplane.doctor.plan.preflight import GIB, fatal, preflight, warnings

GOOD = Machine(
    kernel_features={"veth": "", "bridge": "", "overlayfs": "", "conntrack": "", "iptables nat": ""},
    iptables="iptables v1.8.9 (nf_tables)",
    cgroup_mode="v2",
    controllers=frozenset({"cpu", "memory", "pids"}),
    inotify_instances=512,
    inotify_watches=65536,
    memory=8 * GIB,
    state_free=100 * GIB,
    cache_free=100 * GIB,
    state_root="/var/lib/nodewright",
    cache_root="/root/.cache/nodewright",
    go="go version go1.26",
)


def test_a_good_machine_has_no_complaint() -> None:
    assert {finding.level for finding in preflight(GOOD)} == {"ok"}


@pytest.mark.parametrize(
    ("machine", "check", "level", "fix"),
    [
        pytest.param(replace(GOOD, root=False), "root", "fatal", "sudo", id="not root"),
        pytest.param(replace(GOOD, python=(3, 9)), "python", "fatal", "apt-get", id="old python"),
        pytest.param(replace(GOOD, namespaces="Operation not permitted"), "namespaces", "fatal", "privileged", id="ns"),
        pytest.param(
            replace(GOOD, kernel_features={"bridge": "Unknown device type."}),
            "bridge",
            "fatal",
            "modprobe",
            id="bridge",
        ),
        pytest.param(replace(GOOD, iptables=""), "iptables", "fatal", "apt-get install iptables", id="no iptables"),
        pytest.param(replace(GOOD, foreign_rules=3), "other iptables backend", "warning", "iptables-", id="foreign"),
        pytest.param(
            replace(GOOD, bridge_netfilter=False), "bridge netfilter", "warning", "modprobe", id="br_netfilter"
        ),
        pytest.param(
            replace(GOOD, controllers=frozenset({"cpu", "pids"})),
            "cgroups",
            "fatal",
            "cgroup_enable=memory",
            id="memory",
        ),
        pytest.param(replace(GOOD, may_lower_oom_score=False), "oom_score_adj", "ok", "", id="no CAP_SYS_RESOURCE"),
        pytest.param(replace(GOOD, inotify_instances=16), "inotify", "warning", "sysctl", id="inotify"),
        pytest.param(replace(GOOD, inotify_used=490), "inotify", "warning", "sysctl", id="inotify nearly used up"),
        pytest.param(
            replace(GOOD, inotify_instances=2048, inotify_used=2047, inotify_watches=192536),
            "inotify",
            "warning",
            "max_user_instances=4096",
            id="inotify used up where much is allowed",
        ),
        pytest.param(replace(GOOD, ports_taken=(10250,)), "ports", "ok", "", id="another kubelet"),
        pytest.param(replace(GOOD, memory=GIB), "memory", "warning", "--nodes 1", id="little memory"),
        pytest.param(replace(GOOD, swap=GIB), "swap", "warning", "swapoff", id="swap"),
        pytest.param(replace(GOOD, load=15.9, cpus=2), "load", "ok", "", id="some load"),
        pytest.param(replace(GOOD, load=16.0, cpus=2), "load", "warning", "other work", id="much load"),
        pytest.param(replace(GOOD, state_free=GIB), "disk for the cluster", "warning", "NODEWRIGHT_STATE", id="low"),
        pytest.param(replace(GOOD, state_free=1000), "disk for the cluster", "fatal", "NODEWRIGHT_STATE", id="full"),
        pytest.param(
            replace(GOOD, cache_free=GIB), "disk for the cache", "fatal", "NODEWRIGHT_CACHE", id="no build room"
        ),
        pytest.param(replace(GOOD, cache_free=GIB, built=True), "disk for the cache", "ok", "", id="built already"),
        pytest.param(replace(GOOD, missing_tools=("nsenter",)), "tools", "fatal", "util-linux", id="tools"),
        pytest.param(replace(GOOD, missing_packages=("gcc",)), "Debian packages", "warning", "gcc", id="packages"),
        pytest.param(replace(GOOD, go=""), "Go", "warning", "", id="no Go"),
        pytest.param(
            replace(GOOD, taken_networks=("10.96.3.1/24",)), "address ranges", "warning", "namespaces", id="overlap"
        ),
    ],
)
def test_findings(machine: Machine, check: str, level: str, fix: str) -> None:
    finding = next(finding for finding in preflight(machine) if finding.check == check)
    assert finding.level == level
    assert fix in finding.fix


def test_everything_wrong_is_reported_at_once() -> None:
    bad = Machine(root=False, python=(3, 8), missing_tools=("ip",), state_root="/x", cache_root="/y")
    assert {"root", "python", "iptables", "cgroups", "tools"} <= {f.check for f in fatal(preflight(bad))}


def test_every_complaint_has_a_fix_unless_it_mends_itself() -> None:
    bad = Machine(root=False, python=(3, 8), missing_tools=("ip",), state_root="/x", cache_root="/y")
    assert [f.check for f in preflight(bad) if f.level != "ok" and not f.fix] == ["Go"]


def test_a_chroot_is_one_problem_and_not_one_of_each_kernel_module() -> None:
    said = "unshare: cannot change root filesystem propagation: Invalid argument"
    found = fatal(preflight(replace(GOOD, kernel_features=dict.fromkeys(("veth", "bridge", "overlayfs"), said))))
    assert [one.check for one in found] == ["root folder"]
    assert "chroot" in found[0].found and "modprobe" not in found[0].fix
    assert found == fatal(preflight(replace(GOOD, chroot=True)))


def test_up_names_the_checks_that_warn() -> None:
    assert warnings(preflight(GOOD)) == ""
    said = warnings(preflight(replace(GOOD, inotify_used=500, swap=GIB)))
    assert said == "a warning about inotify, swap: `./nodewright doctor` says more"
