"""How upstream's e2e_node.test is run: its folder, the kubelet beside it, the command line.

The suite starts etcd and an API server of its own on 127.0.0.1, and executes the file called `kubelet` in
its own folder (test/e2e_node/builder/build.go, services/kubelet.go): whatever lies there is what is tested.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from controlplane.cluster.plan.node_files import CONTAINERD_SOCKET
from controlplane.suites.plan.conformance import Selection, ginkgo_line
from controlplane.supervisor.model import Program

POD_CIDR = "10.100.0.0/24"
PID_FILE = "/run/containerd/containerd.pid"
KUBEPODS = "/kubepods"  # some tests look for pods' cgroups there and nowhere else


class Setup(StrEnum):
    """What stands around the kubelet: the suite's API server; nothing; or that, and the suite's own proxy between the
    kubelet and its runtime, with which some tests make calls of the CRI fail."""

    WITH_API = "with-api"
    STANDALONE = "standalone"
    CRI_PROXY = "cri-proxy"


LABELS = {
    Setup.WITH_API: "NodeConformance && !Serial && !Flaky",
    Setup.STANDALONE: "Feature: containsAny StandaloneMode",
    Setup.CRI_PROXY: "Feature: containsAny CriProxy && !(Feature: containsAny OffByDefault)",
}
_FLAGS_OF = {Setup.STANDALONE: ("--standalone-mode=true",), Setup.CRI_PROXY: ("--cri-proxy-enabled=true",)}

# Images that the suite has pulled after some tests (test/e2e_node/image_list.go), for tests that are not run here. Who
# cannot pull them fails, whatever else was tested: they are there by name.
NAMED_ONLY = (
    "docker.io/nfvpe/sriov-device-plugin:v3.1",
    "gcr.io/cadvisor/cadvisor:v0.47.2",
    *(
        f"registry.k8s.io/{name}"
        for name in (
            "e2e-test-images/busybox@sha256:a9155b13325b2abef48e71de77bb8ac015412a566829f621d06bfae5c699b1b9",
            "e2e-test-images/ipc-utils:1.4",
            "e2e-test-images/node-perf/npb-ep:1.6.0",
            "e2e-test-images/node-perf/npb-is:1.7.0",
            "e2e-test-images/node-perf/pytorch-wide-deep:1.0.0",
            "e2e-test-images/perl:5.26",
            "e2e-test-images/volume/nfs:1.6.0",
            "node-problem-detector/node-problem-detector:v1.35.2",
        )
    ),
)
NAMED_AFTER = "registry.k8s.io/e2e-test-images/nonroot:1.5"

# Nothing may be moved out of the cluster's cgroup: by it `down` finds every process. The lock is one that a test takes.
_KUBELET_FLAGS = (
    "--lock-file=/var/run/kubelet.lock --exit-on-lock-contention --system-cgroups= --kubelet-cgroups= "
    "--runtime-cgroups="
)
# A kubelet without systemd is expected to gather what runs outside of cgroups of its own, which it may not do here:
# the node shows the folder by which programs know systemd (sd_booted(3)). Its /run is its own.
_AS_UNDER_SYSTEMD = "mkdir -p /run/systemd/system"
# The suite's API server looks for the interface of the default route; this one leads nowhere: nobody answers for it.
_ENTER = (
    f"{_AS_UNDER_SYSTEMD}; "
    'ip route replace default dev eth0; cd "$1"; PATH="$1/bin:$PATH"; export PATH; shift; exec "$@"'
)
_JOIN = 'for folder in $1; do echo $$ > "$folder/cgroup.procs"; done; shift; exec "$@"'


def kubelet_script(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The file called kubelet: becomes the agent, with the flags that the suite gives."""
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(environment.items()))
    return f'#!/bin/sh\nexec env {settings} {shlex.join(command)} "$@"\n'


def stand_ins(unit: str, *, python: str, project: str) -> dict[str, str]:
    """Commands in front of PATH by name: with the host's own, the suite would run and restart its kubelet as a unit of
    the host's systemd, outside of the node; here it is a program of the node's supervisor (`unit`: its folder)."""
    environment = f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(project)}\n"
    command = f'{environment}exec {shlex.quote(python)} -S -m controlplane.standins.%s {shlex.quote(unit)} "$@"\n'
    return {
        "sudo": '#!/bin/sh\nexec "$@"\n',
        "systemctl": command % "systemctl",
        "systemd-run": command % "systemd_run",
    }


def apart(runtime: Program, cgroups: Sequence[str]) -> Program:
    """containerd that says its pid where the suite looks for it, in a cgroup of its own (a directory for each
    hierarchy), whose figures the kubelet is asked for. By name the suite would find every containerd of the host, and
    some tests end it."""
    said = 'mkdir -p "${0%/*}"; printf %s $$ > "$0"; '
    return replace(runtime, argv=("/bin/sh", "-c", said + _JOIN, PID_FILE, " ".join(cgroups), *runtime.argv))


def kubelet_config() -> str:
    """test/e2e_node/jenkins/default-kubelet-config.yaml, for a machine with cgroup v1 and without much disk."""
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "failCgroupV1": False,
        "failSwapOn": False,
        "podCIDR": POD_CIDR,
        "volumeStatsAggPeriod": "10s",
        "fileCheckFrequency": "10s",
        "evictionPressureTransitionPeriod": "30s",
        "evictionHard": {"memory.available": "250Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%"},
        "imageGCHighThresholdPercent": 100,  # images are imported: a full disk must not take them from the tests
        "serializeImagePulls": False,
    }
    return json.dumps(config, indent=2) + "\n"


def selection(labels: str, focus: str, skip: str, setup: Setup = Setup.WITH_API) -> Selection:
    """`focus` alone chooses without labels, so that one test can be named whatever it is."""
    return Selection(focus=focus, skip=skip, labels=labels or ("" if focus else LABELS[setup]))


def arguments(
    chosen: Selection,
    *,
    ginkgo: str,
    folder: str,
    results: str,
    procs: int,
    setup: Setup = Setup.WITH_API,
    runtime_cgroup: str = "",
    timeout: str = "3h",
) -> list[str]:
    """The command, to be run in the node's namespaces with `folder` as its working directory."""
    return [
        *ginkgo_line(chosen, ginkgo, procs=procs, timeout=timeout),
        "--poll-progress-after=0",
        f"{folder}/e2e_node.test",
        "--",
        f"--kubelet-config-file={folder}/base-config.yaml",
        f"--kubelet-flags={_KUBELET_FLAGS}{runtime_cgroup}",
        f"--container-runtime-endpoint=unix://{CONTAINERD_SOCKET}",
        f"--image-service-endpoint=unix://{CONTAINERD_SOCKET}",
        "--prepull-images=false",
        f"--container-runtime-pid-file={PID_FILE}",
        "--container-runtime-process-name=none-by-name",
        f"--report-dir={results}",
        "--report-complete-junit",
        *_FLAGS_OF.get(setup, ()),
    ]


def listing(chosen: Selection, *, ginkgo: str, suite: str) -> list[str]:
    """The command that only names the tests; it needs no node."""
    return [*ginkgo_line(chosen, ginkgo, procs=1, timeout="1m"), "--dry-run", "-v", suite]


def inside(command: Sequence[str], *, cgroups: Sequence[str], namespaces: Mapping[str, str], folder: str) -> list[str]:
    """`command` in a node's cgroup (a directory for each hierarchy) and namespaces (kind: file), from `folder`."""
    enter = [f"--{kind}={path}" for kind, path in namespaces.items()]
    entered = ["sh", "-c", _ENTER, "sh", folder, *command]
    return ["sh", "-c", _JOIN, "sh", " ".join(cgroups), "nsenter", *enter, "--", *entered]
