"""Fields of KubeletConfiguration that become settings of one part each."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.common.model.rates import Rate
from agent.volumes.model.detection import ChangeDetection
from nodelib.daemons.log import LogOptions
from tests.unit.agent.config.test_settings import parsed, refusal


@pytest.mark.parametrize(
    ("text", "requests", "pulls"),
    [
        pytest.param("", None, None, id="default: no limit"),
        pytest.param("kubeAPIQPS: 20\n", Rate(20, 100), None, id="requests"),
        pytest.param("kubeAPIBurst: 7\n", Rate(50, 7), None, id="burst alone"),
        pytest.param("kubeAPIQPS: 0\nkubeAPIBurst: 9\n", Rate(5, 9), None, id="0 requests: client-go's own default"),
        pytest.param("registryPullQPS: 1\nregistryBurst: 2\n", None, Rate(1, 2), id="pulls"),
        pytest.param("registryBurst: 3\n", None, Rate(5, 3), id="burst of pulls alone"),
        pytest.param("registryPullQPS: 0\nregistryBurst: 2\n", None, None, id="0 pulls: no limit"),
    ],
)
def test_rates(tmp_path: Path, text: str, requests: Rate | None, pulls: Rate | None) -> None:
    found = parsed(tmp_path, text)
    assert (found.api.limit, found.images.pull_rate) == (requests, pulls) and not found.notices


def test_endpoints_and_the_time_of_a_call(tmp_path: Path) -> None:
    found = parsed(tmp_path, "runtimeRequestTimeout: 30s\n").runtime
    assert (found.endpoint, found.image_endpoint) == ("/run/containerd/containerd.sock",) * 2
    assert found.request_timeout == 30
    text = "imageServiceEndpoint: unix:///run/images.sock\ncontainerRuntimeEndpoint: unix:///run/x.sock\n"
    found = parsed(tmp_path, text).runtime
    assert (found.endpoint, found.image_endpoint, found.request_timeout) == ("/run/x.sock", "/run/images.sock", 120)


def test_logging(tmp_path: Path) -> None:
    text = "logging: {format: text, verbosity: 1, vmodule: [{filePattern: cri, verbosity: 5}]}\n"
    assert parsed(tmp_path, text).process.logging == LogOptions(1, "text", (("cri", 5),))
    assert parsed(tmp_path, "logging: {format: json}\n", "-v=4").process.logging == LogOptions(4, "json")
    assert parsed(tmp_path, text, "--vmodule=a*=4,b=6").process.logging.vmodule == (("a*", 4), ("b", 6))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            "logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}\n",
            "logging.vmodule: is only for",
            id="vmodule in json",
        ),
        pytest.param(
            "logging: {format: json}\nfeatureGates: {LoggingBetaOptions: false}\n",
            "logging.format: must be text while featureGates.LoggingBetaOptions is false",
            id="json behind its gate",
        ),
        pytest.param(
            "logging: {vmodule: [{filePattern: '', verbosity: 1}]}\n", "filePattern: must be a pattern", id="no pattern"
        ),
        pytest.param(
            "logging: {vmodule: [{filePattern: 'a=b', verbosity: 1}]}\n", "filePattern: must be a pattern", id="two"
        ),
        pytest.param("systemCgroups: /system\n", "systemCgroups: needs cgroupRoot", id="no cgroupRoot"),
        pytest.param("systemCgroups: /\ncgroupRoot: /\n", "systemCgroups: must not be the root", id="root"),
        pytest.param("registryPullQPS: -1\n", "registryPullQPS: -1 must not be negative", id="negative"),
    ],
)
def test_what_upstream_refuses_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in refusal(tmp_path, text)


def test_how_changes_of_objects_are_found(tmp_path: Path) -> None:
    assert parsed(tmp_path, "").objects == ChangeDetection("Watch", 60)
    text = "configMapAndSecretChangeDetectionStrategy: Cache\nsyncFrequency: 10s\n"
    assert parsed(tmp_path, text).objects == ChangeDetection("Cache", 10)


def test_cgroups_of_the_agent_and_the_system(tmp_path: Path) -> None:
    found = parsed(tmp_path, "").cgroups
    assert (found.kubelet_cgroup, found.system_cgroup) == ("", "")
    found = parsed(tmp_path, "kubeletCgroups: kubelet\nsystemCgroups: /system/\ncgroupRoot: /\n").cgroups
    assert (found.kubelet_cgroup, found.system_cgroup) == ("/kubelet", "/system")


def test_the_servers_curves_and_its_flags(tmp_path: Path) -> None:
    assert (parsed(tmp_path, "").server.tls_curves, parsed(tmp_path, "").server.debug_flags_handler) == ((), True)
    found = parsed(tmp_path, "tlsCurvePreferences: [29, 23]\nenableDebugFlagsHandler: false\n").server
    assert (found.tls_curves, found.debug_flags_handler) == ((29, 23), False)


def test_default_thresholds_stay_beside_those_that_are_given(tmp_path: Path) -> None:
    text = "evictionHard: {memory.available: 1Gi}\n"
    assert parsed(tmp_path, text).eviction.hard == {"memory.available": "1Gi"}
    merged = parsed(tmp_path, f"{text}mergeDefaultEvictionSettings: true\n").eviction.hard
    assert merged["memory.available"] == "1Gi" and merged["nodefs.available"] == "10%"
