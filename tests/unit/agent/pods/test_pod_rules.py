"""Back-off, admission, terminations, image names: the small rules of the pod pipeline."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from agent.admission.plan.admit import NodeView, refusal
from agent.common.model.pods import Pod
from agent.common.model.states import BackOff, BackOffBounds, Waiting
from agent.common.plan import backoff
from agent.images.plan.images import pull_failure, pull_policy, with_default_tag
from agent.pods.model.facts import Cause, Termination
from agent.pods.model.steps import Kill, PreStop
from agent.pods.plan.termination import grace_left, hook_due, kill_after_long_hook, termination_of
from nodelib.errors import Invalid
from nodelib.json_values import Json
from tests.builders.pods import container, pod

SHARES_MESSAGES = {"sysctls": [{"name": "kernel.msgmax", "value": "8192"}]}
NODE = NodeView(name="n1", labels={"disk": "ssd", "cores": "8"}, allocatable={"cpu": "2", "memory": "1Gi", "pods": "3"})


def test_back_off_doubles_to_five_minutes() -> None:
    entry, found, at = None, [], 0.0
    for _ in range(7):
        entry = backoff.extended(entry, at, at, BackOffBounds())
        found.append(entry.delay)
        at = backoff.until(entry, at)
    assert found == [10, 20, 40, 80, 160, 300, 300]


def test_back_off_stays_within_its_bounds() -> None:
    entry, found = None, []
    for at in range(4):
        entry = backoff.extended(entry, at, at, BackOffBounds(3, 20))
        found.append(entry.delay)
    assert found == [3, 6, 12, 20]
    derived = [backoff.derived(attempt, 1000, 1005, BackOffBounds(3, 20)) for attempt in (1, 2, 3, 4, 90)]
    assert [one.delay for one in derived if one] == [3, 6, 12, 20, 20]


def test_back_off_is_reset_after_ten_quiet_minutes_however_short_it_is() -> None:
    entry = BackOff(20, 1000)
    assert backoff.until(entry, 1000 + 599) == 1000 + 619
    assert backoff.until(entry, 1000 + 601) == 0.0


def test_back_off_is_reset_after_ten_quiet_minutes() -> None:
    entry = BackOff(300, 1000)
    assert backoff.until(entry, 1000 + 599) == 1000 + 899
    assert backoff.until(entry, 1000 + 601) == 0.0
    assert backoff.extended(entry, 1000 + 601, 1700, BackOffBounds()).delay == 10


@pytest.mark.parametrize(
    ("attempt", "ran", "delay"),
    [
        pytest.param(0, 5, None, id="first"),
        pytest.param(1, 5, 10, id="second"),
        pytest.param(3, 5, 40, id="fourth"),
        pytest.param(50, 5, 300, id="many"),
        pytest.param(50, 700, None, id="ran-long"),
    ],
)
def test_back_off_derived_from_the_runtime(attempt: int, ran: float, delay: float | None) -> None:
    found = backoff.derived(attempt, 1000, 1000 + ran, BackOffBounds())
    assert (found.delay if found else None) == delay


def requests(**amounts: str) -> Json:
    return container("a", resources={"requests": amounts})


@pytest.mark.parametrize(
    ("of", "others", "reason"),
    [
        pytest.param(pod(requests(cpu="1")), [], None, id="fits"),
        pytest.param(pod(requests(cpu="1500m")), [pod(requests(cpu="1"))], "OutOfcpu", id="cpu"),
        pytest.param(pod(requests(memory="2Gi")), [], "OutOfmemory", id="memory"),
        pytest.param(pod(), [pod(), pod(), pod()], "OutOfpods", id="pods"),
        pytest.param(pod(requests(**{"example.com/gpu": "1"})), [], None, id="extended-resource-not-here"),
        pytest.param(pod(nodeSelector={"disk": "ssd"}), [], None, id="selector"),
        pytest.param(pod(nodeSelector={"disk": "hdd"}), [], "NodeAffinity", id="selector-mismatch"),
        pytest.param(pod(nodeName="n2"), [], "NodeName", id="another-node"),
        pytest.param(pod(os={"name": "windows"}), [], "PodOSNotSupported", id="os"),
        pytest.param(pod(securityContext=SHARES_MESSAGES), [], "SysctlForbidden", id="unsafe-sysctl"),
        pytest.param(
            pod(container(ports=[{"containerPort": 80, "hostPort": 80}])),
            [pod(container(ports=[{"containerPort": 81, "hostPort": 80}]))],
            "NodePorts",
            id="host-port",
        ),
        pytest.param(
            pod(container(ports=[{"containerPort": 80, "hostPort": 80, "hostIP": "127.0.0.1"}])),
            [pod(container(ports=[{"containerPort": 81, "hostPort": 80, "hostIP": "127.0.0.2"}]))],
            None,
            id="host-port-other-address",
        ),
    ],
)
def test_admission(of: Pod, others: list[Pod], reason: str | None) -> None:
    found = refusal(of, others, NODE)
    assert (found.reason if found else None) == reason


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        pytest.param({"key": "disk", "operator": "In", "values": ["ssd"]}, True, id="in"),
        pytest.param({"key": "disk", "operator": "NotIn", "values": ["ssd"]}, False, id="not-in"),
        pytest.param({"key": "gpu", "operator": "Exists"}, False, id="exists"),
        pytest.param({"key": "gpu", "operator": "DoesNotExist"}, True, id="does-not-exist"),
        pytest.param({"key": "cores", "operator": "Gt", "values": ["4"]}, True, id="gt"),
        pytest.param({"key": "cores", "operator": "Lt", "values": ["4"]}, False, id="lt"),
        pytest.param({"key": "disk", "operator": "Gt", "values": ["4"]}, False, id="gt-of-text"),
        pytest.param({"key": "cores", "operator": "Gt", "values": ["few"]}, False, id="gt-than-text"),
        pytest.param({"key": "cores", "operator": "Lt", "values": ["9" * 5000]}, False, id="lt-than-what-is-no-number"),
    ],
)
def test_node_affinity(expression: Json, fits: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert (refusal(pod(affinity=affinity), [], NODE) is None) is fits


def test_unsafe_sysctls_that_the_node_allows() -> None:
    node = NodeView(name="n1", unsafe_sysctls=("kernel.msg*",))
    assert refusal(pod(securityContext=SHARES_MESSAGES), [], node) is None


def test_no_execute_taints() -> None:
    taint = {"key": "down", "value": "1", "effect": "NoExecute"}
    node = NodeView(name="n1", taints=(taint,))
    found = refusal(pod(), [], node)
    assert found is not None
    assert found.message == "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    assert refusal(pod(tolerations=[{"operator": "Exists"}]), [], node) is None
    assert refusal(pod(tolerations=[{"key": "down", "value": "1"}]), [], node) is None


@pytest.mark.parametrize(
    ("order", "wanted", "value", "tolerated"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "4", True),
        ("Lt", "-5", "-6", True),
        ("Lt", "5", "5", False),
        ("Gt", "5", "06", False),
        ("Gt", "+5", "6", False),
        ("Gt", "5", "", False),
        ("Gt", "", "6", False),
        ("Gt", "5", "6.5", False),
        ("Gt", "٥", "6", False),
        ("Gt", "0", str(2**63 - 1), True),
        ("Gt", "0", str(2**63), False),
        ("Gt", "0", "9" * 5000, False),
    ],
)
def test_tolerations_that_compare_numbers(order: str, wanted: str, value: str, tolerated: bool) -> None:
    taint = {"key": "sla", "value": value, "effect": "NoExecute"}
    subject = pod(tolerations=[{"key": "sla", "operator": order, "value": wanted}])
    for gate in (True, False):
        found = refusal(subject, [], NodeView("n1", taints=(taint,), compares_taints=gate))
        assert (found is None) is (gate and tolerated)


def test_without_its_gate_a_comparison_of_equal_values_tolerates_nothing() -> None:
    taint = {"key": "sla", "value": "5", "effect": "NoExecute"}
    subject = pod(tolerations=[{"key": "sla", "operator": "Gt", "value": "5"}])
    assert refusal(subject, [], NodeView("n1", taints=(taint,))) is not None


def deleted(grace: int) -> Pod:
    return pod(meta={"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": grace})


@pytest.mark.parametrize(
    ("of", "phase", "present", "cause", "grace"),
    [
        pytest.param(pod(), "Running", None, None, None, id="lives"),
        pytest.param(deleted(30), "Running", None, Cause.DELETED, 30, id="deleted"),
        pytest.param(deleted(0), "Running", None, Cause.DELETED, 1, id="at-least-one-second"),
        pytest.param(deleted(5), "Running", Termination(Cause.DELETED, 0, 30), Cause.DELETED, 5, id="shorter"),
        pytest.param(deleted(60), "Running", Termination(Cause.DELETED, 0, 30), Cause.DELETED, 30, id="never-longer"),
        pytest.param(pod(terminationGracePeriodSeconds=9), "Succeeded", None, Cause.FINISHED, 9, id="finished"),
        pytest.param(None, "Running", None, Cause.REMOVED, 2, id="removed"),
        pytest.param(None, "Failed", Termination(Cause.REJECTED, 0, 1), Cause.REMOVED, 1, id="rejected-and-removed"),
        pytest.param(deleted(30), "Failed", Termination(Cause.EVICTED, 0, 3), Cause.EVICTED, 3, id="evicted-stays-so"),
        pytest.param(
            pod(activeDeadlineSeconds=5, status={"startTime": "2026-01-01T00:00:00Z"}, terminationGracePeriodSeconds=4),
            "Running",
            None,
            Cause.DEADLINE,
            4,
            id="deadline",
        ),
    ],
)
def test_termination_of(
    of: Pod | None, phase: str, present: Termination | None, cause: Cause | None, grace: int | None
) -> None:
    found = termination_of(of, of or pod(), phase, present, 1_767_225_700.0)
    assert (found.cause if found else None, found.grace if found else None) == (cause, grace)


_DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "full"),
    [
        pytest.param("busybox", "busybox:latest", id="bare"),
        pytest.param("busybox:1.37", "busybox:1.37", id="tag"),
        pytest.param("registry:5000/a/b", "registry:5000/a/b:latest", id="port-is-no-tag"),
        pytest.param(f"a/b@{_DIGEST}", f"a/b@{_DIGEST}", id="digest"),
        pytest.param(_DIGEST, _DIGEST, id="id"),
        pytest.param("Busybox", None, id="upper-case"),
        pytest.param("a b", None, id="space"),
        pytest.param("", None, id="empty"),
        pytest.param("a:", None, id="empty-tag"),
    ],
)
def test_image_names(image: str, full: str | None) -> None:
    if full is None:
        with pytest.raises(Invalid):
            with_default_tag(image)
    else:
        assert with_default_tag(image) == full


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        pytest.param({"image": "a"}, "Always", id="no-tag"),
        pytest.param({"image": "a:latest"}, "Always", id="latest"),
        pytest.param({"image": "a:1"}, "IfNotPresent", id="tag"),
        pytest.param({"image": "a:latest", "imagePullPolicy": "Never"}, "Never", id="given"),
    ],
)
def test_pull_policy(fields: dict[str, Any], policy: str) -> None:
    assert pull_policy(container("a", **fields)) == policy


def test_reasons_of_pull_failures() -> None:
    assert pull_failure("x", "denied") == Waiting("ErrImagePull", "denied")
    found = pull_failure("x", "RegistryUnavailable: no route")
    assert found == Waiting(
        "RegistryUnavailable", "image pull failed for x because the registry is unavailable: no route"
    )


@pytest.mark.parametrize(
    ("asks", "refused"),
    [
        pytest.param(
            pod(container(securityContext={"appArmorProfile": {"type": "RuntimeDefault"}})), True, id="container"
        ),
        pytest.param(pod(securityContext={"appArmorProfile": {"type": "RuntimeDefault"}}), True, id="pod"),
        pytest.param(pod(securityContext={"appArmorProfile": {"type": "Unconfined"}}), False, id="unconfined"),
        pytest.param(
            pod(meta={"annotations": {"container.apparmor.security.beta.kubernetes.io/main": "runtime/default"}}),
            True,
            id="annotation",
        ),
        pytest.param(pod(), False, id="nothing"),
    ],
)
def test_a_pod_whose_apparmor_profile_cannot_be_enforced_is_rejected(asks: Pod, refused: bool) -> None:
    found = refusal(asks, [], replace(NODE, apparmor=False))
    assert (found is not None and found.reason == "AppArmor") is refused
    assert refusal(asks, [], NODE) is None


def test_a_pre_stop_hook_runs_once_and_uses_up_grace() -> None:
    hook = {"exec": {"command": ["bye"]}}
    kill = Kill("c1", "main", "Stopping container main", 30, hook)
    assert hook_due(kill, set()) == hook
    assert hook_due(kill, {"c1"}) is None
    assert hook_due(replace(kill, grace=0), set()) is None
    assert [grace_left(30, took) for took in (0.0, 3.9, 29.0, 40.0)] == [30, 27, 2, 2]


def test_a_container_whose_early_hook_took_the_whole_grace_is_killed_at_once() -> None:
    step = PreStop("c1", "side", 5, {"exec": {"command": ["bye"]}})
    assert kill_after_long_hook(step, 4.9) is None
    assert kill_after_long_hook(step, 5.0) == Kill("c1", "side", "Stopping container side", 0)


def test_many_host_ports_are_compared_in_no_time() -> None:
    def many(first: int) -> Pod:
        ports = [{"containerPort": 1, "hostPort": number} for number in range(first, first + 10_000)]
        return pod(container(ports=ports))

    begin = time.process_time()
    assert refusal(many(1), [many(20_000), many(40_000)], NodeView()) is None
    assert refusal(many(1), [many(10_000)], NodeView()) is not None
    assert time.process_time() - begin < 10
