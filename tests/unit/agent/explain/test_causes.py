"""explain() of pods whose containers or whose node made them fail: the cause as it is, and advice that fits it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agent.common.model.pods import ObservedPod, RunState
from agent.explain.plan.explain import explain
from agent.explain.plan.remedies import Subject, action_for
from agent.pods.model.facts import Cause, Termination
from agent.pods.model.steps import PodPlan
from agent.pods.model.timeline import Activity, ActivityKind, TimelineEntry
from tests.builders.pods import container, pod
from tests.unit.agent.explain.test_explain import NOW, WEB, exited, record, running, waiting

LOOP = waiting("CrashLoopBackOff")
HOOK = Activity(ActivityKind.POST_START, "app")


def attempt(number: int, code: int, reason: str = "Error", message: str = "") -> ObservedPod:
    (one,) = exited(code, reason, message).containers
    return ObservedPod(WEB.uid, (), (dataclasses.replace(one, attempt=number),))


_BEGUN = {"state": RunState.RUNNING, "started_at": int(NOW - 10) * 10**9}
STOPPING = ObservedPod(WEB.uid, (), (dataclasses.replace(exited(0).containers[0], **_BEGUN),))  # type: ignore[arg-type]


# name: (what the node knows, what it waits on, reason, part of the error, part of the advice)
CASES: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "a command that is not in the image": (
        {
            "status": LOOP,
            "seen": exited(128, "StartError", 'exec: "/no/such": stat /no/such: no such file or directory'),
        },
        "container app",
        "CrashLoopBackOff",
        "it cannot be started",
        "`command` and `args` of container app",
    ),
    "a folder over a file of the image": (
        {
            "status": LOOP,
            "seen": exited(
                128, "StartError", f'error mounting "{"/v" * 300}" to rootfs at "/etc/passwd": not a directory'
            ),
        },
        "container app",
        "CrashLoopBackOff",
        "not a directory",
        "change mountPath of container app",
    ),
    "exit code 0 though it should run always": (
        {"status": LOOP, "seen": exited(0, "Completed")},
        "container app",
        "CrashLoopBackOff",
        "exit code 0",
        "run it as a Job",
    ),
    "a command that the shell does not find": (
        {"status": LOOP, "seen": exited(127)},
        "container app",
        "CrashLoopBackOff",
        "exit code 127",
        "A command was not found",
    ),
    "a postStart hook that fails": (
        {
            "status": LOOP,
            "seen": exited(137),
            "timeline": (
                TimelineEntry(NOW - 19, HOOK, 0.1, "exited with 3, message: no config", times=4, last_at=NOW - 19),
            ),
        },
        "container app",
        "CrashLoopBackOff",
        "its postStart hook fails: exited with 3, message: no config",
        "lifecycle.postStart",
    ),
    "a postStart hook that has failed, while the container has its grace": (
        {
            "status": waiting("ContainerCreating"),
            "seen": STOPPING,
            "timeline": (TimelineEntry(NOW - 9, HOOK, 0.1, "exited with 3, message: no config", last_at=NOW - 9),),
            "under_way": (TimelineEntry(NOW - 10, Activity(ActivityKind.START, "app")),),
        },
        "container app",
        "PostStartHookError",
        "its postStart hook failed, so it is being stopped: exited with 3, message: no config",
        "lifecycle.postStart",
    ),
    "a hook that failed before, and runs again": (
        {
            "status": waiting("ContainerCreating"),
            "seen": STOPPING,
            "timeline": (TimelineEntry(NOW - 90, HOOK, 0.1, "exited with 3", last_at=NOW - 90),),
            "under_way": (TimelineEntry(NOW - 10, HOOK),),
        },
        HOOK.words,
        "UnderWay",
        "",
        "",
    ),
    "a hook that failed for an earlier attempt": (
        {
            "status": LOOP,
            "seen": exited(7),
            "timeline": (TimelineEntry(NOW - 90, HOOK, 0.1, "exited with 3", last_at=NOW - 90),),
        },
        "container app",
        "CrashLoopBackOff",
        "exit code 7",
        "--previous",
    ),
    "evicted for its volume": (
        {
            "status": {"phase": "Failed"},
            "termination": Termination(Cause.EVICTED, NOW - 9, 1, "Evicted", 'EmptyDir volume "data" exceeds "1Mi". '),
        },
        "",
        "Evicted",
        'exceeds "1Mi"',
        "sizeLimit",
    ),
    "evicted for the node, by an agent that was started since": (
        {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. x"}},
        "",
        "Evicted",
        "low on resource",
        "Free memory on the node",
    ),
    "longer than its deadline": (
        {
            "status": {"phase": "Failed"},
            "termination": Termination(Cause.DEADLINE, NOW - 9, 1, "DeadlineExceeded", "Pod was active too long"),
        },
        "",
        "DeadlineExceeded",
        "active too long",
        "activeDeadlineSeconds",
    ),
    "more than the node has": (
        {
            "status": {"phase": "Failed"},
            "termination": Termination(Cause.REJECTED, NOW, 1, "OutOfcpu", "not enough resource: cpu, requested: 9"),
            "refused_for": "9 asked for, 2 free",
        },
        "",
        "OutOfcpu",
        "requested: 9. 9 asked for, 2 free",
        "Ask for less cpu",
    ),
    "a host port that is taken": (
        {
            "status": {"phase": "Failed"},
            "termination": Termination(Cause.REJECTED, NOW, 1, "NodePorts", "node(s) didn't have free ports"),
        },
        "",
        "NodePorts",
        "free ports",
        "hostPort",
    ),
    "an end that is not repeated": (
        {"status": {"phase": "Failed"}, "seen": exited(3, message="no input")},
        "",
        "Failed",
        "container app ended with exit code 3: no input",
        "A pod with an owner, such as a Job, is replaced",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cause_and_what_to_do(name: str) -> None:
    known, on, reason, error, action = CASES[name]
    wait = explain(record(**known)).waits[0]
    assert (wait.on, wait.reason) == (on, reason)
    assert error in wait.error and action in wait.action


def test_an_init_container_that_does_not_end_says_so() -> None:
    one = {"name": "setup", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    waits = record(
        pod=pod(container("app"), initContainers=[container("setup")]), status={"initContainerStatuses": [one]}
    )
    (wait,) = explain(waits).waits
    assert (wait.on, wait.since) == ("init container setup", NOW)
    assert "has not ended" in wait.error and "kubectl logs -n shop web -c setup" in wait.action


def test_the_grace_that_is_left_is_counted_now_and_not_when_it_was_planned() -> None:
    stale = PodPlan(reason="app: stopping, 300 s of grace left").reason
    stop = TimelineEntry(NOW - 68, Activity(ActivityKind.STOP, "app"), note="x")
    ending = record(
        status=running(), termination=Termination(Cause.DELETED, NOW - 68, 300), under_way=(stop,), reason=stale
    )
    assert explain(ending).summary == "Terminating: app: stopping, 232 s of grace left"


def test_ends_that_the_runtime_has_forgotten_count_too() -> None:
    (end,) = explain(record(status=running(), seen=attempt(4, 7))).ends
    assert end.times == 5
    (wait,) = explain(record(status=LOOP, seen=attempt(4, 7))).waits
    assert wait.tries == 5


def test_a_long_error_of_a_start_keeps_its_cause() -> None:
    message = f"failed to create: {'/path' * 400}: not a directory"
    (end,) = explain(record(status=LOOP, seen=exited(128, "StartError", message))).ends
    assert end.why.startswith("failed to create") and end.why.endswith("not a directory") and len(end.why) < 700


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("CreateContainerError", 'cannot load seccomp profile "/x/mine.json": no such file', "Put the profile at /x/"),
        ("RunContainerError", "mkdir /etc/passwd: not a directory", "change workingDir"),
        ("RunContainerError", "exec /app: exec format error", "architecture"),
        ("RunContainerError", "unable to find user nobody1: no matching entries", "no user nobody1"),
        ("ReadinessProbeFailed", "HTTP probe failed with statuscode: 404", "The program answers 404"),
        ("ReadinessProbeFailed", 'command timed out: "sleep 30" timed out after 1s', "timeoutSeconds"),
        ("Unschedulable", '0/2: persistentvolumeclaim "data" not found. not found', "Create the claim data"),
        ("FailedMount", 'persistentvolumeclaim "data" not found', "Create the claim data"),
        ("Unschedulable", "2 node(s) did not have enough free storage", "csistoragecapacities"),
        ("Unschedulable", "pod has unbound immediate PersistentVolumeClaims", "must be bound first"),
        ("Unschedulable", "1 node(s) didn't have free ports for the requested pod ports", "another hostPort"),
        (
            "Unschedulable",
            "1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match pod anti-affinity rules",
            "podAntiAffinity",
        ),
        ("Unschedulable", "2 Insufficient example.com/gpu.", "device plugin"),
        ("Unschedulable", "2 Insufficient cpu.", "Ask for less cpu"),
        ("Unschedulable", "2 node(s) were unschedulable", "cordoned"),
        ("ErrImagePull", "tls: first record does not look like a TLS handshake", "answers without TLS"),
        ("ErrImagePull", "http: server gave HTTP response to HTTPS client", "answers without TLS"),
        ("ErrImagePull", "x509: certificate signed by unknown authority", "caFile"),
        ("ImagePullBackOff", "pull access denied", "`kubectl get secrets -n shop`"),
        ("ErrImageNeverPull", 'Container image "a/b:1" is not present', "`docker save -o image.tar a/b:1`"),
        ("SysctlForbidden", "forbidden sysctl", "allowedUnsafeSysctls"),
        ("Finalizers", "example.com/keep", '{"metadata":{"finalizers":null}}'),
    ],
)
def test_advice_fits(reason: str, message: str, expected: str) -> None:
    assert expected in action_for(reason, message, Subject("shop", "web", "app"))
