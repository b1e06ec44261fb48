"""`nodewright why` of pods by what the API server has: pods without an agent that answers, events, logs, wording."""

from __future__ import annotations

import io
from typing import Any

import pytest

from agent.explain.model import Cost, End, Explanation, TimelineLine, Wait
from agent.explain.plan.document import to_json
from cli.display.terminal import new_console
from cli.why import judge, logs, show
from cli.why.logs import LogWanted
from cli.why.model import Explained, Facts, LogTail
from cli.why.wording import Wording
from nodelib.json_values import Json
from tests.builders.pods import container, pod_json

NOW = 1_767_225_600.0
AT = "2026-01-01T00:00:00Z"
LOOPING = {"waiting": {"reason": "CrashLoopBackOff"}}
ENDED = {"exitCode": 7, "reason": "Error", "startedAt": "2025-12-31T23:59:50Z", "finishedAt": AT}
LOST: Json = {"terminated": {**ENDED, "exitCode": 0}}
NODE: Json = {"metadata": {"name": "n1", "labels": {"zone": "a"}}}


def one(status: Json | None = None, *, node: str = "n1", name: str = "web", **spec: Any) -> Json:
    more = {"nodeName": node} if node else {}
    boxes = spec.pop("containers", [container("app")])
    made = pod_json(name, *boxes, meta={"namespace": "shop", "uid": f"u-{name}"}, status=status, **more, **spec)
    made["metadata"]["creationTimestamp"] = AT
    return made


def box(state: Json, last: Json | None = None, **more: Any) -> Json:
    return {"name": "app", "state": state, "lastState": last or {}, "ready": False, "restartCount": 3, **more}


def status(*boxes: Json, phase: str = "Running", **more: Any) -> Json:
    return {"phase": phase, "containerStatuses": list(boxes), **more}


def unscheduled(message: str, reason: str = "Unschedulable") -> Json:
    found = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"phase": "Pending", "conditions": [found]}


GREEDY = [{"name": "app", "resources": {"requests": {"cpu": "100", "memory": "4Gi"}}}]


def node(name: str, *, cordoned: bool = False, **allocatable: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"unschedulable": cordoned}, "status": {"allocatable": allocatable}}


def event(reason: str, message: str, at: str = AT, **more: Any) -> Json:
    about = {"uid": "u-web", "fieldPath": "spec.containers{app}"}
    made = {"metadata": {}, "involvedObject": about, "type": "Warning", "reason": reason, "message": message}
    return {**made, "firstTimestamp": at, "lastTimestamp": at, **more}


PORTS: Json = {"containers": [container("app", ports=[{"containerPort": 80, "hostPort": 8080}])]}
CLAIM: Json = {
    "metadata": {"name": "data", "namespace": "shop", "uid": "c"},
    "spec": {},
    "status": {"phase": "Pending"},
}
# name: (pod, what else there is, what it waits on, part of reason and error, part of the advice)
CASES: dict[str, tuple[Json, dict[str, list[Json]], str, str, str]] = {
    "crash loop": (one(status(box(LOOPING, {"terminated": ENDED}))), {}, "container app", "exit code 7", "--previous"),
    "out of memory": (
        one(status(box(LOOPING, {"terminated": {**ENDED, "reason": "OOMKilled"}}))),
        {},
        "container app",
        "OOMKilled",
        "resources.limits.memory",
    ),
    "failed": (
        one(status(box({"terminated": ENDED}), phase="Failed")),
        {},
        "",
        "container app ended with exit code 7",
        "restartPolicy",
    ),
    "evicted": (
        one({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
        {},
        "",
        "Evicted",
        "Free memory",
    ),
    "a host port that another pod has": (
        one(unscheduled("1 node(s) didn't have free ports"), node="", **PORTS),
        {"pod": [one(name="first", **PORTS)]},
        "scheduler",
        "free ports",
        "8080 is in use on every node that fits, by shop/first",
    ),
    "labels that no node has": (
        one(unscheduled("2 node(s) didn't match Pod's node affinity/selector"), node="", nodeSelector={"zone": "b"}),
        {},
        "scheduler",
        "Unschedulable",
        "`kubectl label node n1 zone=b`",
    ),
    "labels that a node has": (
        one(unscheduled("2 node(s) didn't match Pod's node affinity/selector"), node="", nodeSelector={"zone": "a"}),
        {},
        "scheduler",
        "Unschedulable",
        "Label a node",
    ),
    "more than any node has": (
        one(
            unscheduled("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."),
            node="",
            containers=GREEDY,
        ),
        {"node": [node("n1", cpu="2"), node("n2", cordoned=True, cpu="3500m")]},
        "scheduler",
        "Unschedulable",
        "The pod asks for cpu 100, and no node has more than 3500m (n2, which is cordoned). Ask for less cpu, or add",
    ),
    "more than is left": (
        one(unscheduled("0/1 nodes are available: 1 Insufficient memory."), node="", containers=GREEDY),
        {"node": [node("n1", memory="8Gi")]},
        "scheduler",
        "Unschedulable",
        "The pod asks for memory 4Gi, and n1 has 8Gi for all of its pods. Ask for less memory, delete pods that",
    ),
    "a claim that is not bound": (
        one(
            unscheduled("pod has unbound immediate PersistentVolumeClaims"),
            node="",
            volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
        ),
        {"pvc": [CLAIM]},
        "claim data",
        "NoDefaultStorageClass",
        "provisioner",
    ),
    "a scheduler that does not run": (
        one(node="", schedulerName="mine"),
        {},
        "scheduler",
        'NoScheduler no scheduler called "mine"',
        "schedulerName",
    ),
    "a ResourceClaim that does not exist": (
        one(node="", resourceClaims=[{"name": "gpu", "resourceClaimName": "one-gpu"}]),
        {},
        "scheduler",
        "ResourceClaim one-gpu",
        "resourceClaimName",
    ),
    "a node that does not exist": (one(node="n9"), {}, "node n9", "no Node n9", "--force"),
    "killed by a probe, as the events know": (
        one(status(box(LOOPING, LOST))),
        {
            "event": [
                event("Unhealthy", "Liveness probe failed: HTTP 500"),
                event("Killing", "app failed liveness probe"),
            ]
        },
        "container app",
        "its liveness probe fails: HTTP 500",
        "probe fails",
    ),
    "killed by a probe, but an attempt before": (
        one(status(box(LOOPING, LOST))),
        {"event": [event("Killing", "app failed liveness probe", "2025-12-31T23:00:00Z")]},
        "container app",
        "exits by itself",
        "--previous",
    ),
    "a hook that fails, as the events know": (
        one(status(box(LOOPING, LOST))),
        {"event": [event("FailedPostStartHook", "PostStartHook failed")]},
        "container app",
        "its postStart hook fails",
        "lifecycle.postStart",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_api_server_alone_tells(name: str) -> None:
    pod, more, on, said, advice = CASES[name]
    lists = {kind: tuple(found) for kind, found in more.items()}
    facts = Facts({"node": (NODE,), **lists, "pod": (*lists.get("pod", ()), pod)})
    (found,) = [each for each in judge.explained({}, facts) if each.found.name == "web"]
    waits = [wait for wait in found.found.waits if wait.on == on]
    assert any(said in f"{wait.reason} {wait.error}" and advice in wait.action for wait in waits), found.found.waits
    assert not found.is_well


@pytest.mark.parametrize(
    "message",
    [
        "Unable to retrieve some image pull secrets (other, regcred); attempting to pull the image may not succeed.",
        "Unable to retrieve some image pull secrets (regcred: not found); the pull may not succeed.",
    ],
    ids=["upstream's kubelet", "ours"],
)
def test_a_pull_secret_is_named_that_the_kubelet_could_not_read(message: str) -> None:
    state = {"waiting": {"reason": "ErrImagePull", "message": "401 Unauthorized"}}
    pod = one(status(box(state)), imagePullSecrets=[{"name": "regcred"}])
    events = (event("FailedToRetrieveImagePullSecret", message),)
    (found,) = judge.explained({}, Facts({"node": (NODE,), "pod": (pod,), "event": events}))
    (wait,) = found.found.waits
    assert "See that the Secret regcred" in wait.action and "`kubectl get secret regcred -n shop`" in wait.action
    assert "other" not in wait.action


@pytest.mark.parametrize("policy", ["Always", "IfNotPresent"])
def test_a_pull_policy_that_the_container_has_is_not_advised(policy: str) -> None:
    state = {"waiting": {"reason": "ErrImagePull", "message": "dial tcp: lookup registry.example: no such host"}}
    pod = one(status(box(state)), containers=[{**container("app"), "image": "a:1", "imagePullPolicy": policy}])
    (found,) = judge.explained({}, Facts({"node": (NODE,), "pod": (pod,)}))
    (wait,) = found.found.waits
    assert "load the image onto the node" in wait.action
    assert ("set imagePullPolicy: IfNotPresent" in wait.action) is (policy == "Always")


def test_an_agent_that_has_just_started_is_corrected_by_the_events() -> None:
    wait = Wait("container app", "CrashLoopBackOff", "it exits by itself with exit code 0", "Run it as a Job.")
    mine = Explanation("shop", "web", "u-web", "n1", "Running", f"Running, waits: {wait.error}", (wait,))
    facts = Facts({"pod": (one(status(box(LOOPING, LOST))),), "event": (event("Killing", "app failed startup probe"),)})
    (found,) = judge.explained({"n1": [to_json(mine)]}, facts)
    assert found.by_node and "startup probe fails" in found.found.waits[0].error
    assert "exits by itself" not in found.found.summary


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (box(LOOPING, {"terminated": ENDED}), [False]),
        (box({"running": {}}, {"terminated": ENDED}), [True]),
        (box({"terminated": ENDED}), [False]),
        (box({"running": {}}, {"terminated": ENDED}, ready=True), []),
        (box({"terminated": {**ENDED, "exitCode": 0}}), []),
        (box(LOOPING, LOST), [False]),
        (box(LOOPING, {"terminated": {**ENDED, "reason": "StartError"}}), []),
        (box({"waiting": {"reason": "ErrImagePull"}}), []),
    ],
    ids=["loop", "runs again", "ended", "well again", "done", "exit 0 again and again", "never ran", "no image"],
)
def test_which_logs_are_worth_reading(found: Json, expected: list[bool]) -> None:
    wanted = logs.wanted(one(status(found)))
    assert wanted == [LogWanted("shop", "web", "app", previous) for previous in expected]


def test_the_end_of_a_log_is_short_and_drives_no_terminal() -> None:
    text = "".join(f"line {number}\n" for number in range(50)) + "\x1b[2Jgone\r\n" + "x" * 5000 + "\n\n"
    tail = logs.tail("app", text)
    assert tail is not None and len(tail.lines) == logs.LINES
    assert tail.lines[-2] == "\\x1b[2Jgone" and len(tail.lines[-1].encode()) <= 300
    assert logs.tail("app", "\n \n") is None


@pytest.mark.parametrize(
    ("wording", "advice", "expected"),
    [
        (
            Wording("lab"),
            "`nodewright addons add ingress` adds Traefik.",
            "`./nodewright addons add --name lab ingress` adds Traefik.",
        ),
        (Wording("lab"), "See `kubectl get pods`.", "See `./nodewright kubectl --name lab get pods`."),
        (Wording("nodewright"), "`kubectl get pods`", "`./nodewright kubectl get pods`"),
        (Wording(kubeconfig="/my config"), "`kubectl get pods`", "`kubectl --kubeconfig='/my config' get pods`"),
        (Wording(), "`kubectl get pods`", "`kubectl get pods`"),
        (Wording("lab"), "`nodewright up --addons x`", "`./nodewright up --name lab --addons x`"),
        (Wording("lab"), "`nodewright status`.", "`./nodewright status --name lab`."),
        (Wording("lab"), "A kubectl of yours", "A kubectl of yours"),
    ],
)
def test_advice_names_commands_that_work_here(wording: Wording, advice: str, expected: str) -> None:
    assert wording.typed(advice) == expected


def test_advice_in_json_names_commands_that_work_here_too() -> None:
    costs = (Cost("container app", "throttled", action="Raise it: `kubectl edit deploy web`."),)
    found = Wording("lab").advised(looping("web-1", costs=costs).found)
    assert found.waits[0].action == "Read `./nodewright kubectl --name lab logs x`."
    assert found.costs[0].action == "Raise it: `./nodewright kubectl --name lab edit deploy web`."


def shown(*pods: Explained, whole: bool = False) -> str:
    out = io.StringIO()
    page = show.Page(NOW, Wording("lab"), new_console(out, width=160))
    if whole:
        show.one(pods[0], page)
    else:
        show.many(pods, page)
    return out.getvalue()


def looping(name: str, **more: Any) -> Explained:
    wait = Wait(
        "container app", "CrashLoopBackOff", "exit code 7\x1b[2J", "Read `kubectl logs x`.", NOW - 75, NOW + 9, 3
    )
    found = Explanation("shop", name, name, "n1", "Running", "x", (wait,), **more)
    return Explained(found, True, owner="deployment/web")


def test_the_list_has_error_and_remedy_and_one_entry_for_pods_that_are_alike() -> None:
    text = shown(looping("web-1"), looping("web-2"), looping("web-3"))
    assert text.count("CrashLoopBackOff") == 1
    assert "pod shop/web-1 on n1, and 2 more of deployment/web alike: Running" in text
    assert "error: exit code 7\\x1b[2J" in text and "for 1 min 15 s, 3 times, next try" in text
    assert "do: Read `./nodewright kubectl --name lab logs x`." in text


def test_ends_are_counted_and_the_log_is_quoted() -> None:
    alike = (End("app", NOW - 20, "exit code 7", times=5), End("app", NOW - 40, "exit code 7", times=4))
    pod = looping("web", ends=alike)
    text = shown(Explained(pod.found, True, logs=(LogTail("app", ("first", "last")),)), whole=True)
    assert "container app ended 5 times, last 20 s ago, exit code 7" in text
    assert "the last lines of the log of container app:\n  | first\n  | last" in text
    mixed = (End("app", NOW - 20, "exit code 7", times=5), End("app", NOW - 40, "ok", times=4))
    text = shown(looping("web", ends=mixed), whole=True)
    assert "container app has ended 5 times, most recently:\n  ended 20 s ago, exit code 7\n  ended 40 s ago" in text


def test_a_step_and_its_part_do_not_repeat_their_error() -> None:
    error = "failed to create containerd task: " + "x" * 30
    lines = (
        TimelineLine(NOW - 9, "start app", 1.0, error, times=18, last_at=NOW - 2, kind="start", container="app"),
        TimelineLine(NOW - 9, "run app", 1.0, error, "start app", "", 18, NOW - 2, "run", "app", None, "start"),
    )
    text = shown(looping("web", timeline=lines), whole=True)
    assert text.count("failed to create") == 1 and "18 times" in text
