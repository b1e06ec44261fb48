"""How upstream's e2e_node.test is run: its folder, the kubelet in it, the command line. Pure.

The suite starts its own etcd and API server on 127.0.0.1, and executes the file called `kubelet` in its own folder
(test/e2e_node/builder/build.go, services/kubelet.go), so whatever is there is tested.
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


class Setup(StrEnum):
    """What the kubelet runs with: the suite's API server, no API server, or the API server and the suite's CRI proxy.

    Some tests use that proxy, which is between the kubelet and its runtime, to make CRI calls fail.
    """

    WITH_API = "with-api"
    STANDALONE = "standalone"
    CRI_PROXY = "cri-proxy"


LABELS = {
    Setup.WITH_API: "NodeConformance && !Serial && !Flaky",
    Setup.STANDALONE: "Feature: containsAny StandaloneMode",
    Setup.CRI_PROXY: "Feature: containsAny CriProxy && !(Feature: containsAny OffByDefault)",
}
_FLAGS_OF = {Setup.STANDALONE: ("--standalone-mode=true",), Setup.CRI_PROXY: ("--cri-proxy-enabled=true",)}

# Images that the suite pulls after some tests (test/e2e_node/image_list.go) for tests that are not run here. A kubelet
# that cannot pull them would fail for that reason alone, so their names exist on the node.
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

# Nothing may be moved out of the cluster's cgroup, by which `down` finds every process. One test takes the lock file.
_KUBELET_FLAGS = (
    "--lock-file=/var/run/kubelet.lock --exit-on-lock-contention --system-cgroups= --kubelet-cgroups= "
    "--runtime-cgroups="
)
# Without systemd the suite expects the kubelet to move other processes into cgroups of its own, which it may not do
# here. So the node has the folder by which programs recognize systemd (sd_booted(3)), in its own /run.
_AS_UNDER_SYSTEMD = "mkdir -p /run/systemd/system"
# The suite's API server needs the interface of a default route; this route leads nowhere.
_ENTER = (
    f"{_AS_UNDER_SYSTEMD}; "
    'ip route replace default dev eth0; cd "$1"; PATH="$1/bin:$PATH"; export PATH; shift; exec "$@"'
)
_JOIN = 'for folder in $1; do echo $$ > "$folder/cgroup.procs"; done; shift; exec "$@"'


def kubelet_script(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The script called `kubelet`: it executes the agent with the suite's flags."""
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(environment.items()))
    return f'#!/bin/sh\nexec env {settings} {shlex.join(command)} "$@"\n'


def stand_ins(unit: str, *, python: str, project: str) -> dict[str, str]:
    """Scripts in front of PATH, by name, for the node whose supervisor is in the folder `unit`.

    With the host's commands the suite would run its kubelet as a unit of the host's systemd, outside of the node; with
    these it is a program of the node's supervisor.
    """
    environment = f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(project)}\n"
    command = f'{environment}exec {shlex.quote(python)} -S -m controlplane.standins.%s {shlex.quote(unit)} "$@"\n'
    return {
        "sudo": '#!/bin/sh\nexec "$@"\n',
        "systemctl": command % "systemctl",
        "systemd-run": command % "systemd_run",
    }


def in_own_cgroup(runtime: Program, cgroups: Sequence[str]) -> Program:
    """containerd with a pid file for the suite and its own cgroup (a directory for each hierarchy).

    The suite asks the kubelet for the statistics of that cgroup. Without the pid file it would find every containerd of
    the host by its name, and some tests kill it.
    """
    write_pid = 'mkdir -p "${0%/*}"; printf %s $$ > "$0"; '
    return replace(runtime, argv=("/bin/sh", "-c", write_pid + _JOIN, PID_FILE, " ".join(cgroups), *runtime.argv))


def kubelet_config() -> str:
    """test/e2e_node/jenkins/default-kubelet-config.yaml, adapted to cgroup v1 and little disk space."""
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
        "imageGCHighThresholdPercent": 100,  # images are imported: they must not be removed from a full disk
        "serializeImagePulls": False,
    }
    return json.dumps(config, indent=2) + "\n"


def selection(labels: str, focus: str, skip: str, setup: Setup = Setup.WITH_API) -> Selection:
    """With only a `focus` labels do not matter, so that any single test can be named."""
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
    """The command line; it runs in the node's namespaces with `folder` as its working directory."""
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
    """The command line that only lists the tests; it needs no node."""
    return [*ginkgo_line(chosen, ginkgo, procs=1, timeout="1m"), "--dry-run", "-v", suite]


def from_folder(command: Sequence[str], folder: str) -> list[str]:
    """`command` with `folder` as its working directory."""
    return ["sh", "-c", _ENTER, "sh", folder, *command]
