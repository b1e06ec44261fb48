"""pod_status as a table: phases, conditions, container states, and patches made of their differences."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.pods import ContainerState, ObservedPod, Pod, ProbeState, RunState
from agent.common.model.states import Waiting
from agent.pods.model.facts import Cause, Facts, Termination
from agent.pods.model.steps import PodPlan
from agent.pods.plan.status import StatusInputs, pod_status
from agent.pods.plan.status_patch import status_patch
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.unit.agent.pods.test_pod import DEAD, NOW, box, one, seen

RUN = RunState.RUNNING
ONE = pod(container("a"), restartPolicy="Always")
TWO = pod(container("a"), container("b"), restartPolicy="Always")


def with_policy(of: Pod, policy: str) -> Pod:
    return Pod({**of.raw, "spec": {**of.spec, "restartPolicy": policy}})


def status(of: Pod, observed: ObservedPod, **fields: Any) -> Json:
    """`fields` of StatusInputs, or of its Facts or PodPlan."""
    of_facts, of_plan = ({one.name for one in dataclasses.fields(kind)} - {"waiting"} for kind in (Facts, PodPlan))
    given = StatusInputs(
        facts=Facts(**{"now": NOW, **{name: value for name, value in fields.items() if name in of_facts}}),
        plan=PodPlan(**{name: value for name, value in fields.items() if name in of_plan}),
        host_ips=("10.89.0.11",),
        **{name: value for name, value in fields.items() if name not in of_facts | of_plan},
    )
    return pod_status(of, observed, given)


def condition(found: Json, kind: str) -> Json:
    return next(one for one in found["conditions"] if one["type"] == kind)


def dead(name: str, code: int, of: Pod = TWO) -> ContainerState:
    return one(of, name, DEAD, exit_code=code, reason="Error" if code else "Completed")


@pytest.mark.parametrize(
    ("policy", "containers", "phase"),
    [
        pytest.param("Always", (), "Pending", id="nothing-yet"),
        pytest.param("Always", (one(TWO, "a"),), "Pending", id="one-not-started"),
        pytest.param("Always", (one(TWO, "a"), one(TWO, "b")), "Running", id="all-running"),
        pytest.param("Always", (one(TWO, "a"), dead("b", 1)), "Running", id="one-dead"),
        pytest.param("Always", (dead("a", 0), dead("b", 0)), "Running", id="always-all-dead-will-restart"),
        pytest.param("Never", (dead("a", 0), dead("b", 0)), "Succeeded", id="never-success"),
        pytest.param("Never", (dead("a", 0), dead("b", 1)), "Failed", id="never-failure"),
        pytest.param("Never", (one(TWO, "a"), dead("b", 1)), "Running", id="never-one-runs"),
        pytest.param("OnFailure", (dead("a", 0), dead("b", 0)), "Succeeded", id="on-failure-success"),
        pytest.param("OnFailure", (dead("a", 0), dead("b", 1)), "Running", id="on-failure-will-restart"),
    ],
)
def test_phase(policy: str, containers: tuple[ContainerState, ...], phase: str) -> None:
    assert status(with_policy(TWO, policy), seen(*containers))["phase"] == phase


def test_a_deleted_pod_fails_or_succeeds_by_its_containers() -> None:
    termination = Termination(Cause.DELETED, NOW, 30)
    gone = status(TWO, seen(dead("a", 0), dead("b", 143)), termination=termination, terminal=True)
    assert gone["phase"] == "Failed"
    well = status(TWO, seen(dead("a", 0), dead("b", 0)), termination=termination, terminal=True)
    assert well["phase"] == "Succeeded"


def test_a_terminal_phase_waits_for_the_last_container() -> None:
    termination = Termination(Cause.DEADLINE, NOW, 30, "DeadlineExceeded", "too long")
    before = {"phase": "Running"}
    still = status(ONE, seen(one(ONE, "a")), termination=termination, previous=before)
    assert (still["phase"], still.get("reason")) == ("Running", None)
    over = status(ONE, seen(dead("a", 137, ONE)), termination=termination, previous=before, terminal=True)
    assert (over["phase"], over["reason"], over["message"]) == ("Failed", "DeadlineExceeded", "too long")


@pytest.mark.parametrize(
    ("cause", "code", "phase", "reason"),
    [
        pytest.param(Cause.EVICTED, 143, "Failed", "Preempting", id="sent away, killed by the signal"),
        pytest.param(Cause.EVICTED, 0, "Succeeded", None, id="sent away, done in good order"),
        pytest.param(Cause.DEADLINE, 0, "Failed", "Preempting", id="over its time, whatever it says"),
    ],
)
def test_an_evicted_pod_can_still_succeed(cause: Cause, code: int, phase: str, reason: str | None) -> None:
    termination = Termination(cause, NOW, 30, "Preempting", "a critical pod", disrupted=cause is Cause.EVICTED)
    # Not yet `terminal`: the sandbox is still to be stopped, and a reported phase is final.
    for terminal in (False, True):
        found = status(
            ONE, seen(dead("a", code, ONE)), termination=termination, previous={"phase": "Running"}, terminal=terminal
        )
        assert (found["phase"], found.get("reason")) == (phase, reason)
        marks = [one["message"] for one in found["conditions"] if one["type"] == "DisruptionTarget"]
        assert marks == (["a critical pod"] if termination.disrupted else [])


def test_a_pod_evicted_before_it_ran_fails() -> None:
    termination = Termination(Cause.EVICTED, NOW, 30, "Evicted", "memory")
    assert status(ONE, seen(sandboxes=()), termination=termination)["phase"] == "Failed"


def test_a_terminal_phase_is_never_left() -> None:
    of = Pod({**ONE.raw, "status": {"phase": "Succeeded"}})
    assert status(of, seen(one(ONE, "a")))["phase"] == "Succeeded"


def test_a_rejected_pod_shows_why() -> None:
    termination = Termination(Cause.REJECTED, NOW, 1, "OutOfcpu", "Pod was rejected: no cpu")
    found = status(ONE, seen(sandboxes=()), termination=termination, terminal=True, finished=True)
    assert (found["phase"], found["reason"]) == ("Failed", "OutOfcpu")


def test_conditions_of_a_new_pod() -> None:
    of = pod(container("a"), initContainers=[container("i")], meta={"generation": 3})
    found = status(of, seen(sandboxes=()))
    assert {one["type"]: one["status"] for one in found["conditions"]} == {
        "PodReadyToStartContainers": "False",
        "Initialized": "False",
        "Ready": "False",
        "ContainersReady": "False",
        "PodScheduled": "True",
    }
    assert condition(found, "Initialized")["message"] == "containers with incomplete status: [i]"
    assert condition(found, "Ready")["message"] == "containers with unready status: [a]"
    assert condition(found, "Ready")["observedGeneration"] == 3
    assert found["observedGeneration"] == 3
    assert found["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_readiness_gates() -> None:
    of = pod(container("a"), readinessGates=[{"conditionType": "x/y"}])
    found = status(of, seen(one(ONE, "a")))
    assert condition(found, "ContainersReady")["status"] == "True"
    assert condition(found, "Ready")["reason"] == "ReadinessGatesNotReady"
    of = Pod({**of.raw, "status": {"conditions": [{"type": "x/y", "status": "True"}]}})
    assert condition(status(of, seen(one(ONE, "a"))), "Ready")["status"] == "True"


def test_of_very_many_readiness_gates_some_are_named() -> None:
    """30,000 of them took the agent's loop 20 ms at each change of the pod, and 1.6 s beside 2,000 conditions."""
    gates = [{"conditionType": f"x/{number}"} for number in range(5000)]
    of = pod(container("a"), readinessGates=gates)
    of = Pod({**of.raw, "status": {"conditions": [{"type": "x/0", "status": "True"}, {"type": "x/1", "status": "?"}]}})
    message = condition(status(of, seen(one(ONE, "a"))), "Ready")["message"]
    assert message.startswith('the status of pod readiness gate "x/1" is not "True", but ?, corresponding condition')
    assert message.count("readiness gate") == 100


def test_transition_times_change_only_with_the_status() -> None:
    first = status(ONE, seen(sandboxes=()))
    later = status(ONE, seen(one(ONE, "a")), previous=first, now=NOW + 60)
    assert condition(later, "PodScheduled")["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert condition(later, "Ready")["lastTransitionTime"] == "2026-01-01T00:01:00Z"
    assert later["startTime"] == first["startTime"]


def test_waiting_reasons_and_last_states() -> None:
    waiting = {"a": Waiting("CrashLoopBackOff", "back-off 10s")}
    found = status(ONE, seen(dead("a", 1, ONE)), waiting=waiting)["containerStatuses"][0]
    assert found["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    assert found["lastState"]["terminated"]["exitCode"] == 1
    both = seen(dead("a", 1, ONE), one(ONE, "a", RUN, 1))
    again = status(ONE, both)["containerStatuses"][0]
    assert again["restartCount"] == 1
    assert "running" in again["state"]
    assert again["lastState"]["terminated"]["exitCode"] == 1
    assert again["containerID"] == "containerd://a1"


def test_ids_are_named_by_their_runtime() -> None:
    made = one(ONE, "a", RUN)
    probed = {made.id: ProbeState(True, True)}
    found = status(ONE, seen(replace(made, runtime="cri-o")), probes=probed)["containerStatuses"][0]
    assert (found["containerID"], found["ready"]) == (f"cri-o://{made.id}", True)
    ended = status(ONE, seen(replace(dead("a", 1, ONE), runtime="cri-o")))["containerStatuses"][0]
    assert ended["state"]["terminated"]["containerID"].startswith("cri-o://")


def test_a_running_container_that_vanished_is_shown_as_terminated_before() -> None:
    before = {"phase": "Running", "containerStatuses": [{"name": "a", "restartCount": 2, "state": {"running": {}}}]}
    found = status(ONE, seen(), previous=before)
    assert found["phase"] == "Running"
    shown = found["containerStatuses"][0]
    assert shown["restartCount"] == 3
    assert shown["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"


@pytest.mark.parametrize(
    ("probes", "before", "ready"),
    [
        pytest.param({}, None, False, id="not-probed-yet"),
        pytest.param({"a0": ProbeState(True, True)}, None, True, id="probed"),
        pytest.param({}, {"ready": True, "started": True}, True, id="agent-restarted"),
        pytest.param({"a0": ProbeState(True, False)}, {"ready": True, "started": True}, False, id="probe-speaks"),
    ],
)
def test_readiness_holds_until_a_probe_answers(probes: dict[str, ProbeState], before: Json | None, ready: bool) -> None:
    of = pod(container("a", readinessProbe={"exec": {}}))
    previous: Json = {}
    if before is not None:
        old = {"name": "a", "containerID": "containerd://a0", "state": {"running": {}}, **before}
        previous = {"phase": "Running", "containerStatuses": [old]}
    found = status(of, seen(one(ONE, "a")), probes=probes, previous=previous)
    assert found["containerStatuses"][0]["ready"] is ready


def test_a_finished_pod_has_a_terminated_state_for_every_container() -> None:
    termination = Termination(Cause.DELETED, NOW, 30)
    found = status(TWO, seen(dead("a", 0)), termination=termination, terminal=True, finished=True)
    states = {one["name"]: one["state"]["terminated"] for one in found["containerStatuses"]}
    assert states["b"]["reason"] == "ContainerStatusUnknown"
    assert found["phase"] == "Failed"


def test_addresses() -> None:
    found = status(ONE, seen(one(ONE, "a")))
    assert (found["podIP"], found["hostIP"]) == ("10.244.0.2", "10.89.0.11")
    host = pod(container("a"), hostNetwork=True)
    found = status(host, seen(sandboxes=(box(ips=(), network_mode="NODE"),)))
    assert found["podIPs"] == [{"ip": "10.89.0.11"}]


@pytest.mark.parametrize(
    ("spec", "actual", "shown"),
    [
        pytest.param("100m", {"cpu_shares": 102}, "100m", id="as-asked-for"),
        pytest.param("0.5", {"cpu_shares": 512}, "0.5", id="in-the-words-of-the-spec"),
        pytest.param("2", {"cpu_shares": 1024}, "1", id="not-resized-yet"),
    ],
)
def test_resources_show_what_the_cgroup_has(spec: str, actual: Json, shown: str) -> None:
    of = pod(container("a", resources={"requests": {"cpu": spec}}))
    found = status(of, seen(one(of, "a", resources=actual)))["containerStatuses"][0]
    assert found["resources"]["requests"]["cpu"] == shown
    assert found["allocatedResources"] == {"cpu": spec}


def test_conditions_of_others_stay_and_are_not_sent() -> None:
    other = {"type": "example.com/gate", "status": "True"}
    of = Pod({**ONE.raw, "status": {"conditions": [other]}})
    found = status(of, seen(one(ONE, "a")))
    assert other in found["conditions"]
    patch = status_patch(of, of.status, found)
    assert patch is not None
    assert other not in patch["status"]["conditions"]
    assert patch["metadata"] == {"uid": of.uid}


def test_no_patch_if_the_api_shows_the_status_already() -> None:
    found = status(ONE, seen(one(ONE, "a")))
    assert status_patch(ONE, found, found) is None


def test_a_patch_removes_what_is_gone() -> None:
    first = status(ONE, seen(sandboxes=()))
    second = status(ONE, seen(one(ONE, "a")), previous=first)
    shown = {**first, "reason": "Old", "podIPs": [{"ip": "10.244.0.9"}]}
    patch = status_patch(ONE, shown, second)
    assert patch is not None
    assert patch["status"]["reason"] is None
    assert patch["status"]["podIPs"] == [{"ip": "10.244.0.2"}, {"$patch": "replace"}]
    ready = next(one for one in patch["status"]["conditions"] if one["type"] == "Ready")
    assert ready["reason"] is None


def test_a_created_init_container_is_still_initializing() -> None:
    with_init = pod(container("a"), initContainers=[container("i")])
    found = status(with_init, seen(one(with_init, "i", RunState.CREATED)))
    assert found["initContainerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


@pytest.mark.parametrize(("source", "said"), [("file", True), ("api", False)])
def test_an_init_container_known_only_from_the_mirror(source: str, said: bool) -> None:
    """Upstream's suite removes a static pod's init container and looks for these words after a restart."""
    whole = replace(pod(container("a"), initContainers=[container("i")]), source=source)
    before = status(whole, seen(dead("i", 0, whole), one(whole, "a")))
    (ended,) = (entry["state"]["terminated"] for entry in before["initContainerStatuses"])
    after = status(whole, seen(one(whole, "a")), previous=before)
    (found,) = (entry["state"]["terminated"] for entry in after["initContainerStatuses"])
    assert ("Unable to get init container status" in found.get("message", "")) is said
    assert {name: found[name] for name in ended} == ended
    assert after["initContainerStatuses"][0]["ready"] is True


@pytest.mark.parametrize("letter", ["x", "é"])
def test_the_messages_of_all_containers_share_12_kib(letter: str) -> None:
    """normalizeStatus of pkg/kubelet/status: each container has its share, in bytes."""
    many = pod(*(container(f"c{at:02}") for at in range(48)), restartPolicy="Never")
    ended = [replace(dead(f"c{at:02}", 1, many), message=letter * 4096) for at in range(48)]
    shown = status(many, seen(*ended))["containerStatuses"]
    messages = [one["state"]["terminated"]["message"] for one in shown]
    assert {len(one.encode()) for one in messages} == {256} and set("".join(messages)) == {letter}


@pytest.mark.parametrize(
    ("fields", "name", "shown"),
    [
        pytest.param({"stop_signal": "SIGUSR1"}, "stopSignal", "SIGUSR1", id="its-stop-signal"),
        pytest.param({"stop_signal": "RUNTIME_DEFAULT"}, "stopSignal", None, id="the-runtimes-own"),
        pytest.param({}, "stopSignal", None, id="unknown"),
        pytest.param(
            {"user": {"uid": 7, "gid": 8, "supplemental_groups": [8, 9]}},
            "user",
            {"linux": {"uid": 7, "gid": 8, "supplementalGroups": [8, 9]}},
            id="its-user",
        ),
        pytest.param({"user": {"uid": 7}}, "user", {"linux": {"uid": 7, "gid": 0}}, id="its-user-without-groups"),
        pytest.param({}, "user", None, id="no-user-of-this-runtime"),
    ],
)
def test_what_the_runtime_says_of_a_container_is_shown(fields: Json, name: str, shown: Any) -> None:
    (found,) = status(ONE, seen(replace(one(ONE, "a"), **fields)))["containerStatuses"]
    assert found.get(name) == shown
