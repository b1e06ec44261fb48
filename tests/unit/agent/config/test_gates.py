"""Feature gates of the agent: what they refuse, what they switch, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.common.model.states import BackOffBounds
from agent.resources.plan.memory_qos import MemoryQos
from nodelib.errors import Invalid
from tests.unit.agent.config.test_settings import parsed


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param("Frobnicate=true", "featureGates.Frobnicate: unrecognized feature gate", id="unknown"),
        pytest.param("ImageVolume=false", "featureGates.ImageVolume: cannot be set to false", id="locked"),
        pytest.param(
            "KubeletPSI=false,Frobnicate=true", "featureGates.KubeletPSI: cannot be set to false", id="of several"
        ),
    ],
)
def test_what_upstream_refuses_is_refused(tmp_path: Path, given: str, problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        parsed(tmp_path, "", f"--feature-gates={given}")
    assert problem in caught.value.message


def test_a_locked_gate_may_be_given_as_it_is(tmp_path: Path) -> None:
    assert not parsed(tmp_path, "featureGates: {ImageVolume: true, ComponentFlagz: false}\n").notices


@pytest.mark.parametrize(
    ("gate", "line"),
    [
        pytest.param("EnvFiles: false", "featureGates.EnvFiles cannot be switched off here", id="always on"),
        pytest.param(
            "QOSReserved: true",
            "featureGates.QOSReserved has no effect here: memory requests are not reserved at the QoS level",
            id="absent",
        ),
        pytest.param("QOSReserved: false", "", id="absent and not wanted"),
        pytest.param("EnvFiles: true", "", id="there and wanted"),
        pytest.param(
            "DRAPartitionableDevices: false",
            "featureGates.DRAPartitionableDevices has no effect here: no program of a node reads it",
            id="of another component",
        ),
    ],
)
def test_what_changes_nothing_is_said(tmp_path: Path, gate: str, line: str) -> None:
    assert parsed(tmp_path, f"featureGates: {{{gate}}}\n").notices == ((line,) if line else ())


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        pytest.param("", (10, 300), id="default"),
        pytest.param("crashLoopBackOff: {maxContainerRestartPeriod: 20s}\n", (10, 20), id="configured"),
        pytest.param("crashLoopBackOff: {maxContainerRestartPeriod: 2s}\n", (2, 2), id="shorter than the first"),
        pytest.param("featureGates: {KubeletCrashLoopBackOffMax: false}\n", (10, 300), id="not configurable"),
        pytest.param(
            "featureGates: {KubeletCrashLoopBackOffMax: false, ReduceDefaultCrashLoopBackOffDecay: true}\n",
            (1, 60),
            id="reduced",
        ),
        pytest.param("featureGates: {ReduceDefaultCrashLoopBackOffDecay: true}\n", (1, 300), id="reduced, configured"),
        pytest.param("featureGates: {AllAlpha: true, AllBeta: true}\n", (1, 300), id="all alpha gates"),
    ],
)
def test_bounds_of_the_restart_back_off(tmp_path: Path, text: str, bounds: tuple[float, float]) -> None:
    assert parsed(tmp_path, text).restarts == BackOffBounds(*bounds)


@pytest.mark.parametrize(
    ("gate", "text"),
    [
        ("KubeletCrashLoopBackOffMax", "crashLoopBackOff: {maxContainerRestartPeriod: 20s}"),
        (
            "GracefulNodeShutdown: false, WindowsGracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority",
            "shutdownGracePeriod: 30s",
        ),
        (
            "GracefulNodeShutdownBasedOnPodPriority",
            "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 5}]",
        ),
        ("KubeletEnsureSecretPulledImages", "imagePullCredentialsVerificationPolicy: AlwaysVerify"),
        ("RotateKubeletServerCertificate", "serverTLSBootstrap: true"),
    ],
)
def test_what_a_closed_gate_forbids(tmp_path: Path, gate: str, text: str) -> None:
    parsed(tmp_path, f"{text}\n")
    parsed(tmp_path, f"featureGates: {{{gate}: false}}\n")
    with pytest.raises(Invalid) as caught:
        parsed(tmp_path, f"{text}\nfeatureGates: {{{gate}: false}}\n")
    assert f"must not be set while featureGates.{gate.split(':')[0]} is false" in caught.value.message


def test_without_its_gate_no_image_is_verified(tmp_path: Path) -> None:
    assert parsed(tmp_path, "").images.verify == "NeverVerifyPreloadedImages"
    assert parsed(tmp_path, "featureGates: {KubeletEnsureSecretPulledImages: false}\n").images.verify == "NeverVerify"


@pytest.mark.parametrize(
    ("gate", "setting"),
    [("ComponentFlagz", "flagz"), ("ComponentStatusz", "statusz"), ("ContainerCheckpoint", "checkpoints")],
)
def test_pages_of_the_server_have_gates(tmp_path: Path, gate: str, setting: str) -> None:
    assert getattr(parsed(tmp_path, "").server, setting)
    assert not getattr(parsed(tmp_path, f"featureGates: {{{gate}: false}}\n").server, setting)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("memoryThrottlingFactor: 0\n", "must be more than 0 and at most 1", id="too small"),
        pytest.param("memoryThrottlingFactor: 1.01\n", "must be more than 0 and at most 1", id="too large"),
        pytest.param(
            "memoryThrottlingFactor: 0.5\nfeatureGates: {MemoryQoS: false}\n",
            "must not be set while",
            id="switched off",
        ),
        pytest.param(
            "memoryReservationPolicy: TieredReservation\nfeatureGates: {MemoryQoS: false}\n",
            "needs featureGates.MemoryQoS",
            id="nothing can be kept",
        ),
    ],
)
def test_what_memory_qos_refuses(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        parsed(tmp_path, text)
    assert problem in caught.value.message


def test_memory_qos_as_configured_and_its_default_of_older_files(tmp_path: Path) -> None:
    found = parsed(tmp_path, "memoryThrottlingFactor: 0.5\nmemoryReservationPolicy: TieredReservation\n")
    assert found.cgroups.pods.memory == MemoryQos(throttling=0.5, reserves=True) and not found.notices
    assert parsed(tmp_path, "memoryThrottlingFactor: 0.9\nfeatureGates: {MemoryQoS: false}\n").cgroups.pods.memory == (
        MemoryQos(on=False, throttling=0.9)
    )
    assert parsed(tmp_path, "").cgroups.pods.memory == MemoryQos()


def test_gates_of_lists_and_of_selinux(tmp_path: Path) -> None:
    found, off = parsed(tmp_path, ""), parsed(tmp_path, "featureGates: {WatchListClient: false, SELinuxMount: false}\n")
    assert (found.api.streaming_lists, found.selinux_every_mode) == (True, True)
    assert (off.api.streaming_lists, off.selinux_every_mode, off.notices) == (False, False, ())


def test_the_gate_of_comparing_tolerations(tmp_path: Path) -> None:
    assert not parsed(tmp_path, "").admission.compares_taints
    assert parsed(tmp_path, "featureGates: {TaintTolerationComparisonOperators: true}\n").admission.compares_taints
