"""explain() as a table: what the node knows, and what a user gets to read."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agent.common.model.pods import ContainerState, ImageFacts, ObservedPod, RunState
from agent.common.model.states import BackOff, Failure, ImagePhase, ImageState, Waiting
from agent.explain.plan.explain import explain
from agent.explain.plan.record import Record
from agent.explain.plan.remedies import Subject, action_for
from agent.images.model.pulls import PullProgress, UnreadSecret
from agent.pods.model.facts import Cause, Facts, Termination
from agent.pods.model.steps import PodPlan
from agent.pods.model.timeline import Activity, ActivityKind, TimelineEntry
from agent.pods.plan.restart_backoff import backoff_key
from agent.probes.model import Outcome, ProbeAnswer, ProbeKind, Verdict
from nodelib.json_values import Json
from tests.builders.pods import container, pod

NOW = 1_767_225_600.0
WEB = pod(container("app"))


def record(**fields: Any) -> Record:
    """`fields` of Record, or of its Facts or PodPlan."""
    of_facts, of_plan = ({one.name for one in dataclasses.fields(kind)} - {"probes"} for kind in (Facts, PodPlan))
    given: dict[str, Any] = {
        "facts": Facts(**{"now": NOW, **{name: value for name, value in fields.items() if name in of_facts}}),
        "plan": PodPlan(**{name: value for name, value in fields.items() if name in of_plan}),
        "node": "n1",
        "pod": WEB,
        "status": {},
        "seen": ObservedPod(WEB.uid),
    }
    return Record(**{**given, **{name: fields[name] for name in fields.keys() - of_facts - of_plan}})


def waiting(reason: str, message: str = "") -> Json:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "app", "state": state, "ready": False}]}


def running(*, ready: bool = False, started: bool = True, **more: Any) -> Json:
    one = {"name": "app", "state": {"running": {}}, "ready": ready, "started": started}
    return {"phase": "Running", "containerStatuses": [one], **more}


def exited(code: int, reason: str = "Error", message: str = "") -> ObservedPod:
    times: Json = {"created_at": 1, "started_at": int((NOW - 20) * 1e9), "finished_at": int((NOW - 10) * 1e9)}
    one = ContainerState("c1", "s", WEB.uid, "app", 0, RunState.EXITED, exit_code=code, reason=reason, **times)
    return ObservedPod(WEB.uid, (), (dataclasses.replace(one, message=message),))


PULL, ENDED = Activity(ActivityKind.PULL, "app"), Activity(ActivityKind.ENDED, "app")
PREPARE = Activity(ActivityKind.PREPARE)

CASES = {
    "missing config map": (
        record(
            status=waiting("CreateContainerConfigError", 'configmap "settings" not found'),
            failures={
                "app": Failure(
                    "CreateContainerConfigError", 'configmap "settings" not found', NOW + 4, 3, NOW - 9, "Create it."
                )
            },
        ),
        ("container app", "CreateContainerConfigError", NOW - 9, NOW + 4, 3, "Create it."),
    ),
    "volume": (
        record(
            blocked=Failure("FailedMount", 'secret "keys" not found', NOW + 2, 2, NOW - 3, "Create Secret shop/keys.")
        ),
        ("volumes", "FailedMount", NOW - 3, NOW + 2, 2, "Create Secret shop/keys."),
    ),
    "image": (
        record(
            status=waiting("ImagePullBackOff", "Back-off: not found"),
            images={"app": ImageState(0, ImagePhase.FAILED, waiting=Waiting("x"), retry_at=NOW + 20)},
            timeline=(TimelineEntry(NOW - 30, PULL, 0.2, "not found", times=2, last_at=NOW - 10),),
        ),
        ("image of container app", "ImagePullBackOff", NOW - 30, NOW + 20, 2, "registry does not have it"),
    ),
    "pulling": (
        record(
            status=waiting("ContainerCreating"),
            images={"app": ImageState(0, ImagePhase.PULLING)},
            under_way=(TimelineEntry(NOW - 5, PULL),),
            pulls={"app": PullProgress(done=1 << 20, total=1 << 24)},
        ),
        ("image of container app", "Pulling", NOW - 5, None, 0, ""),
    ),
    "crash loop": (
        record(
            status=waiting("CrashLoopBackOff", "back-off 10s"),
            seen=exited(7),
            backoff={backoff_key(container("app")): BackOff(20, NOW - 15)},
            timeline=(TimelineEntry(NOW - 60, ENDED, 1, "exit code 7", times=4, last_at=NOW - 10),),
        ),
        ("container app", "CrashLoopBackOff", NOW - 60, NOW + 10, 4, "--previous"),
    ),
    "network": (
        record(node_problems=("network not ready: cni plugin not initialized",), wait_until=NOW + 1),
        ("network", "NetworkNotReady", None, NOW + 1, 0, "/etc/cni/net.d"),
    ),
    "readiness probe": (
        record(
            status=running(),
            probes=(
                ProbeAnswer(
                    "app", ProbeKind.READINESS, Outcome(Verdict.FAILURE, "connection refused"), NOW, NOW - 8, 8, 3, 1
                ),
            ),
        ),
        ("container app", "ReadinessProbeFailed", NOW - 8, NOW + 1, 8, "Nothing listens"),
    ),
    "startup probe, not the readiness probe behind it": (
        record(
            status=running(started=False),
            probes=(
                ProbeAnswer("app", ProbeKind.STARTUP, None, NOW - 2, NOW - 2, 0, 30, 10),
                ProbeAnswer("app", ProbeKind.READINESS, None, NOW - 2, NOW - 2, 0, 1, 1),
            ),
        ),
        ("container app", "StartupProbePending", NOW - 2, NOW + 8, 0, ""),
    ),
    "readiness gate": (
        record(
            status=running(
                ready=True,
                conditions=[
                    {
                        "type": "Ready",
                        "status": "False",
                        "reason": "ReadinessGatesNotReady",
                        "message": 'gate "lb" does not exist',
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }
                ],
            )
        ),
        ("readiness gates", "ReadinessGatesNotReady", NOW, None, 0, "controller that owns the gate"),
    ),
    "preStop hook": (
        record(
            termination=Termination(Cause.DELETED, NOW - 5, 30),
            under_way=(
                TimelineEntry(NOW - 5, Activity(ActivityKind.STOP, "app"), note="x"),
                TimelineEntry(NOW - 5, Activity(ActivityKind.PRE_STOP, "app"), of=Activity(ActivityKind.STOP, "app")),
            ),
        ),
        ("container app", "Stopping", NOW - 5, NOW + 25, 0, "SIGKILL"),
    ),
    "unmount that fails": (
        record(
            termination=Termination(Cause.DELETED, NOW - 50, 30),
            blocked=Failure("FailedKillPod", "device is busy", NOW + 5, 4, NOW - 12, "Stop what uses it."),
        ),
        ("end", "FailedKillPod", NOW - 12, NOW + 5, 4, "Stop what uses it."),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_pod_waits_for(name: str) -> None:
    given, (on, reason, since, next_try, tries, action) = CASES[name]
    (wait,) = explain(given).waits
    assert (wait.on, wait.reason, wait.since, wait.next_try, wait.tries) == (on, reason, since, next_try, tries)
    assert action in wait.action


def test_a_pod_that_is_well_waits_for_nothing() -> None:
    found = explain(record(status=running(ready=True)))
    assert (found.waits, found.summary) == ((), "Running and ready")


def test_a_pod_that_may_begin_few_connections_is_told() -> None:
    found = explain(record(status=running(ready=True), limited="9 of 10 are its own"))
    assert found.summary == "Running, waits on connections: ConnectionsLimited: 9 of 10 are its own"
    assert "nf_conntrack_max" in found.waits[0].action


KILLED = "Container app failed liveness probe, will be restarted"


def test_a_killed_container_shows_the_reason_noted_at_the_kill() -> None:
    stop = TimelineEntry(NOW - 12, Activity(ActivityKind.STOP, "app"), 2.0, note=KILLED, probe=ProbeKind.LIVENESS)
    (end,) = explain(record(status=running(), seen=exited(137), timeline=(stop,))).ends
    assert end.how == "exit code 137 = SIGKILL"
    assert end.why == KILLED


def test_a_crash_loop_by_a_liveness_probe_names_the_probe_and_its_output() -> None:
    refused = Outcome(Verdict.FAILURE, "dial tcp 10.0.0.9:80: connection refused")
    fatal = ProbeAnswer("app", ProbeKind.LIVENESS, refused, NOW - 13, NOW - 14, 2, 2, 1)
    stop = TimelineEntry(NOW - 12, Activity(ActivityKind.STOP, "app"), 2.0, note=KILLED, probe=ProbeKind.LIVENESS)
    loop: dict[str, Any] = {"status": waiting("CrashLoopBackOff"), "seen": exited(0), "probes": (fatal,)}
    found = explain(record(**loop, timeline=(stop,)))
    assert "because its liveness probe fails: dial tcp 10.0.0.9:80: connection refused" in found.summary
    assert "Nothing listens" in found.waits[0].action
    by_itself = explain(record(**loop))
    assert "it exits by itself with exit code 0" in by_itself.summary, "the probe answered for another attempt"
    unknown = explain(record(**{**loop, "probes": ()}, timeline=(stop,)))
    assert "failed liveness probe" in unknown.summary


def test_a_failing_liveness_probe_is_shown_before_it_ends_the_container() -> None:
    failing = ProbeAnswer("app", ProbeKind.LIVENESS, Outcome(Verdict.FAILURE, "HTTP 500"), NOW, NOW - 5, 1, 3, 5)
    (wait,) = explain(record(status=running(ready=True), probes=(failing,))).waits
    assert (wait.reason, wait.error, wait.tries) == ("LivenessProbeFailed", "HTTP 500", 1)
    wordless = dataclasses.replace(failing, outcome=Outcome(Verdict.FAILURE, ""))
    (wait,) = explain(record(status=running(ready=True), probes=(wordless,))).waits
    assert wait.error == "its command failed and printed nothing"
    silent = ProbeAnswer("app", ProbeKind.LIVENESS, None, NOW, NOW, 0, 3, 5)
    assert explain(record(status=running(ready=True), probes=(silent,))).waits == ()


def test_out_of_memory_names_the_limit() -> None:
    limited = pod(container("app", resources={"limits": {"memory": "16Mi"}}))
    (end,) = explain(record(pod=limited, status=running(), seen=exited(137, "OOMKilled"))).ends
    assert "its limit of 16Mi" in end.why and "resources.limits.memory" in end.why


def test_the_termination_message_of_a_container_is_shown() -> None:
    (end,) = explain(record(status=running(), seen=exited(3, message="no database\n"))).ends
    assert (end.how, end.why) == ("exit code 3", "no database")


def test_steps_under_way_are_what_a_starting_pod_waits_for() -> None:
    steps = (
        TimelineEntry(NOW - 1, Activity(ActivityKind.PREPARE)),
        TimelineEntry(NOW - 1, Activity(ActivityKind.VOLUMES), of=Activity(ActivityKind.PREPARE)),
    )
    found = explain(record(status=waiting("ContainerCreating"), under_way=steps))
    assert [(wait.on, wait.reason) for wait in found.waits] == [("volumes", "UnderWay")]


def test_images_that_are_there_are_no_wait() -> None:
    there = {"app": ImageState(0, ImagePhase.PRESENT, facts=ImageFacts("x"))}
    assert explain(record(status=waiting("ContainerCreating"), images=there)).waits == ()


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("ErrImagePull", "401 Unauthorized", "pull secret"),
        ("ErrImagePull", "manifest unknown", "name and tag"),
        ("ErrImagePull", "dial tcp: lookup x: no such host", "cannot reach the registry"),
        ("Unschedulable", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. x", "Ask for less nvidia.com/gpu,"),
        ("Unschedulable", "node(s) had untolerated taint {a: b}", "Tolerate"),
        ("Unschedulable", "2 node(s) didn't match pod topology spread constraints", "add a node"),
        ("Unschedulable", "pod topology spread constraints (missing required label)", "topologyKey"),
        ("RunContainerError", 'exec: "x": executable file not found in $PATH', "`command` and `args` of container app"),
        (
            "FailedCreatePodSandBox",
            'plugin type="loopback" failed (add): failed to find plugin "loopback" in path [/opt/cni/bin]',
            "use_internal_loopback",
        ),
        ("FailedCreatePodSandBox", 'failed to find plugin "x" in path [/opt/cni/bin]', "x into /opt/cni/bin"),
        (
            "FailedCreatePodSandBox",
            'plugin type="nodewright" failed (add): nodewright: hostPort *:10250/tcp is the node\'s own: one listens',
            "create it with another one",
        ),
        (
            "FailedCreatePodSandBox",
            'RuntimeClass handler "x" does not support user namespaces',
            "Give the node runc 1.2",
        ),
        ("SomethingNew", "no rule knows it", ""),
    ],
)
def test_advice(reason: str, message: str, expected: str) -> None:
    found = action_for(reason, message, Subject("shop", "web", "app"))
    assert expected in found if expected else found == ""


UNREACHED = "dial tcp: lookup registry.example: no such host"


@pytest.mark.parametrize(
    ("image", "policy", "advised"),
    [
        ("web:1", "Always", True),
        ("web:1", "IfNotPresent", False),
        ("web", "", True),
        ("web:1", "", False),
    ],
    ids=["always", "already", "the default of latest", "the default of a tag"],
)
def test_a_policy_that_the_container_has_is_not_advised(image: str, policy: str, advised: bool) -> None:
    box = {**container("app"), "image": image, "imagePullPolicy": policy}
    failed = {"app": ImageState(0, ImagePhase.FAILED)}
    (wait,) = explain(record(pod=pod(box), status=waiting("ErrImagePull", UNREACHED), images=failed)).waits
    assert "load the image onto the node (`nodewright load IMAGE`" in wait.action
    assert ("set imagePullPolicy: IfNotPresent" in wait.action) is advised


DENIED = "failed to authorize: failed to fetch anonymous token: 401 Unauthorized"


@pytest.mark.parametrize(
    ("message", "unread", "said", "unsaid"),
    [
        (DENIED, [UnreadSecret("regcred")], "Create the Secret regcred, which", "see that it is there"),
        (DENIED, [UnreadSecret("regcred")], "`kubectl create secret docker-registry regcred -n d …`", "NAME"),
        (DENIED, [UnreadSecret("regcred", "data is not base64")], "could not be used: data is not base64", "Create"),
        (DENIED, [UnreadSecret(f"s{number}") for number in range(9)], "So it is with 6 more", "s3"),
        (UNREACHED, [UnreadSecret("regcred")], "Create the Secret regcred", "NAME"),
        (UNREACHED, [UnreadSecret("regcred")], "The node cannot reach the registry", "NAME"),
        (DENIED, [], "name it in the pod's imagePullSecrets", "Create the Secret"),
    ],
    ids=["missing", "its command", "malformed", "many", "not the only cause", "the other cause", "none"],
)
def test_a_pull_secret_that_is_not_there_is_named(
    message: str, unread: list[UnreadSecret], said: str, unsaid: str
) -> None:
    subject = pod(container("app"), meta={"namespace": "d"})
    failed = {"app": ImageState(0, ImagePhase.FAILED)}
    state = waiting("ImagePullBackOff", f'Back-off pulling image "x": ErrImagePull: {message}')
    (wait,) = explain(record(pod=subject, status=state, images=failed, unread_secrets=tuple(unread))).waits
    assert said in wait.action and unsaid not in wait.action


def test_a_pull_secret_is_no_matter_of_other_waits() -> None:
    unread = (UnreadSecret("regcred"),)
    (wait,) = explain(record(status=waiting("CreateContainerConfigError", "x"), unread_secrets=unread)).waits
    assert "regcred" not in wait.action


def test_the_progress_of_a_pull_or_its_place_in_the_queue() -> None:
    pulled = {"status": waiting("ContainerCreating"), "images": {"app": ImageState(0, ImagePhase.PULLING)}}
    found = explain(record(**pulled, pulls={"app": PullProgress(done=1 << 20, total=1 << 24)}))
    assert (found.waits[0].progress, found.waits[0].error) == ("1.0 of 16 MiB", "")
    assert found.summary == "Pending, waits on image of container app: Pulling: 1.0 of 16 MiB"
    found = explain(record(**pulled, pulls={"app": PullProgress(turn=2, at_once=5)}))
    assert found.waits[0].progress == "2nd in the queue of pulls (5 at once)"


def test_the_image_of_a_volume_is_waited_for() -> None:
    under_way = (TimelineEntry(NOW - 9, Activity(ActivityKind.PULL, volume="data")),)
    pulls = {"volume/data": PullProgress(done=1 << 20, total=1 << 24)}
    found = explain(record(status=waiting("ContainerCreating"), under_way=under_way, pulls=pulls))
    [wait] = found.waits
    assert (wait.on, wait.reason, wait.since, wait.progress) == (
        "image of volume data",
        "Pulling",
        NOW - 9,
        "1.0 of 16 MiB",
    )


def test_a_container_named_sandbox_is_not_the_sandbox() -> None:
    termination = Termination(Cause.DELETED, NOW - 5, 30)
    steps = (
        TimelineEntry(NOW - 5, Activity(ActivityKind.STOP, "sandbox"), note="x"),
        TimelineEntry(NOW - 4, Activity(ActivityKind.STOP_SANDBOX)),
    )
    found = explain(record(termination=termination, under_way=steps))
    assert [(wait.on, wait.reason) for wait in found.waits] == [
        ("container sandbox", "Stopping"),
        ("stop sandbox", "UnderWay"),
    ]
    assert [(line.step, line.kind, line.container) for line in found.timeline] == [
        ("stop sandbox", "stop", "sandbox"),
        ("stop sandbox", "stop sandbox", ""),
    ]
