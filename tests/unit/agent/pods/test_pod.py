"""plan_pod as a table: change pod or runtime, expect steps (upstream: TestComputePodActions)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.labels import HASH, RESTART_COUNT, container_hash
from agent.common.model.pods import (
    ContainerState,
    ImageFacts,
    Kind,
    ObservedPod,
    Pod,
    ProbeState,
    RunState,
    SandboxState,
)
from agent.common.model.states import BackOff, Failure, ImagePhase, ImageState, Waiting
from agent.pods.model.facts import Cause, Facts, Termination
from agent.pods.model.steps import EnsureImage, PodPlan, Start
from agent.pods.plan.pod import plan_pod
from agent.pods.plan.restart_backoff import backoff_key
from nodelib.json_values import Json
from tests.builders.pods import container, pod

NOW = 1_767_225_600.0
BASE = pod(container("a"), container("b"), container("c"), restartPolicy="Always")
INIT = pod(
    container("a"),
    restartPolicy="Always",
    initContainers=[container("i1"), container("i2"), container("i3")],
)
SIDECAR = pod(
    container("a"),
    restartPolicy="Always",
    initContainers=[container("s1", restartPolicy="Always"), container("i2")],
)
PROBED = pod(
    container("a"),
    restartPolicy="Always",
    initContainers=[container("s1", restartPolicy="Always", startupProbe={"exec": {}}), container("i2")],
)


def box(attempt: int = 0, *, ready: bool = True, **fields: Any) -> SandboxState:
    made = SandboxState(f"s{attempt}", "u", "shop", "web", attempt, ready, attempt + 1, ips=("10.244.0.2",))
    return replace(made, **fields)


def one(of: Pod, name: str, state: RunState = RunState.RUNNING, attempt: int = 0, **fields: Any) -> ContainerState:
    found = of.container(name)
    assert found is not None
    made = ContainerState(
        f"{name}{attempt}",
        "s0",
        "u",
        name,
        attempt,
        state,
        created_at=10 + attempt,
        started_at=int((NOW - 100) * 1e9),
        finished_at=int((NOW - 1) * 1e9) if state is RunState.EXITED else 0,
        annotations={HASH: container_hash(found[1]), RESTART_COUNT: str(attempt)},
    )
    return replace(made, **fields)


def seen(*containers: ContainerState, sandboxes: tuple[SandboxState, ...] | None = None) -> ObservedPod:
    newest_first = tuple(sorted(containers, key=lambda item: -item.created_at))
    return ObservedPod("u", (box(),) if sandboxes is None else sandboxes, newest_first)


def running(of: Pod, *names: str) -> tuple[ContainerState, ...]:
    return tuple(one(of, name) for name in names)


def facts(of: Pod = BASE, **fields: Any) -> Facts:
    """Prepared, with every image there for the attempts 0 to 3."""
    return replace(Facts(NOW, prepared=True, images=Present()), **fields)


class Present(dict[str, ImageState]):
    """Every image of every attempt is there."""

    def __init__(self, attempt: int = 0) -> None:
        super().__init__()
        self.attempt = attempt

    def get(self, name: str, default: Any = None) -> Any:
        return ImageState(self.attempt, ImagePhase.PRESENT, ref="sha256:1", facts=ImageFacts("sha256:1"))


def words_of(plan: PodPlan) -> list[str]:
    """Steps as short words."""
    words = []
    for step in plan.steps:
        name = type(step).__name__
        match name:
            case "Start":
                how = f" of {step.created_id}" if step.created_id else ""  # type: ignore[union-attr]
                words.append(f"start {step.container['name']}/{step.attempt}{how}")  # type: ignore[union-attr]
            case "EnsureImage":
                words.append(f"image {step.container['name']}")  # type: ignore[union-attr]
            case "Kill":
                words.append(f"kill {step.name}")  # type: ignore[union-attr]
            case "RunSandbox":
                words.append(f"sandbox {step.attempt}")  # type: ignore[union-attr]
            case "StopSandbox":
                words.append(f"stop {step.sandbox_id}")  # type: ignore[union-attr]
            case "RemoveContainer":
                words.append(f"remove {step.container_id}")  # type: ignore[union-attr]
            case _:
                words.append(name.lower())
    return words


DEAD = RunState.EXITED
CASES: list[Any] = [
    pytest.param(BASE, seen(*running(BASE, "a", "b", "c")), facts(), [], id="everything-is-good"),
    pytest.param(BASE, seen(sandboxes=()), facts(), ["sandbox 0"], id="new-pod"),
    pytest.param(BASE, seen(sandboxes=()), facts(prepared=False), ["prepare"], id="volumes-come-before-the-sandbox"),
    pytest.param(
        BASE,
        seen(sandboxes=()),
        facts(prepared=False, sandbox_prepared=True),
        ["sandbox 0", "prepare"],
        id="volumes-are-mounted-beside-the-sandbox",
    ),
    pytest.param(
        BASE, seen(), facts(prepared=False, sandbox_prepared=True), ["prepare"], id="nothing-starts-without-them"
    ),
    pytest.param(
        BASE,
        seen(sandboxes=()),
        facts(images={}),
        ["sandbox 0", "image a", "image b", "image c"],
        id="images-are-pulled-beside-the-sandbox",
    ),
    pytest.param(BASE, seen(), facts(), ["start a/0", "start b/0", "start c/0"], id="start-all-containers"),
    pytest.param(
        BASE,
        seen(*running(BASE, "a", "c"), one(BASE, "b", DEAD, exit_code=1)),
        facts(images=Present(1)),
        ["start b/1"],
        id="restart-the-dead-one",
    ),
    pytest.param(
        BASE,
        seen(*running(BASE, "a", "c"), one(BASE, "b", RunState.CREATED)),
        facts(),
        ["start b/0 of b0"],
        id="a-container-left-between-create-and-start-is-no-restart",
    ),
    pytest.param(
        BASE,
        seen(*running(BASE, "a", "c"), one(BASE, "b", RunState.CREATED, annotations={HASH: "another"})),
        facts(images=Present(1)),
        ["start b/1"],
        id="a-created-container-of-another-definition-is-not-started",
    ),
    pytest.param(
        BASE,
        seen(*running(BASE, "a", "c"), one(BASE, "b", RunState.CREATED)),
        facts(images=Present(), failures={"b": Failure("RunContainerError", "no", NOW - 1, times=3)}),
        ["start b/0 of b0"],
        id="one-that-could-not-be-started-is-tried-again",
    ),
    pytest.param(
        BASE,
        seen(*running(BASE, "a", "c"), one(BASE, "b", RunState.CREATED)),
        facts(images=Present(1), failures={"b": Failure("RunContainerError", "no", NOW - 1, times=4)}),
        ["start b/1"],
        id="one-that-could-not-be-started-four-times-is-given-up",
    ),
    pytest.param(
        BASE,
        seen(*running(BASE, "a", "c"), one(BASE, "b", RunState.CREATED)),
        facts(images=Present(), failures={"b": Failure("CreateContainerError", "reserved", NOW - 1, times=9)}),
        ["start b/0 of b0"],
        id="one-whose-name-another-call-has-taken-is-that-of-the-other-call",
    ),
    pytest.param(
        BASE,
        seen(*running(BASE, "a", "c"), one(BASE, "b", RunState.UNKNOWN)),
        facts(images=Present(1)),
        ["kill b"],
        id="an-unknown-container-is-killed-before-another-is-started",
    ),
    pytest.param(
        BASE,
        seen(*running(BASE, "a", "b", "c"), sandboxes=(box(ready=False),)),
        facts(),
        ["kill a", "kill b", "kill c"],
        id="sandbox-not-ready-kills-first",
    ),
    pytest.param(
        BASE,
        seen(sandboxes=(box(ready=False),)),
        facts(),
        ["stop s0"],
        id="sandbox-not-ready-is-stopped-next",
    ),
    pytest.param(
        BASE,
        seen(sandboxes=(box(ready=False),)),
        facts(stopped_sandboxes=frozenset({"s0"})),
        ["sandbox 1"],
        id="then-comes-the-next-attempt",
    ),
    pytest.param(
        BASE,
        seen(sandboxes=(box(1), box(0))),
        facts(stopped_sandboxes=frozenset({"s0"})),
        ["stop s1"],
        id="two-ready-sandboxes",
    ),
    pytest.param(
        BASE,
        seen(sandboxes=(box(ips=()),)),
        facts(stopped_sandboxes=frozenset({"s0"})),
        ["sandbox 1"],
        id="sandbox-without-an-address",
    ),
    pytest.param(
        pod(container("a"), hostNetwork=True),
        seen(one(BASE, "a"), sandboxes=(box(ips=(), network_mode="NODE"),)),
        facts(),
        [],
        id="host-network-needs-no-address",
    ),
    pytest.param(
        pod(container("a"), restartPolicy="Never"),
        seen(one(BASE, "a", DEAD), sandboxes=(box(ready=False),)),
        facts(stopped_sandboxes=frozenset({"s0"})),
        [],
        id="never-no-new-sandbox-for-what-has-run",
    ),
    pytest.param(
        pod(container("a"), restartPolicy="Never"),
        seen(sandboxes=(box(ready=False),)),
        facts(stopped_sandboxes=frozenset({"s0"})),
        ["sandbox 1"],
        id="never-a-new-sandbox-when-nothing-has-run",
    ),
    pytest.param(
        pod(container("a"), restartPolicy="OnFailure"),
        seen(one(BASE, "a", DEAD), sandboxes=(box(ready=False),)),
        facts(stopped_sandboxes=frozenset({"s0"})),
        [],
        id="on-failure-no-new-sandbox-when-all-succeeded",
    ),
    pytest.param(
        pod(container("a"), restartPolicy="OnFailure"),
        seen(one(BASE, "a", DEAD, exit_code=1), sandboxes=(box(ready=False),)),
        facts(stopped_sandboxes=frozenset({"s0"}), images=Present(1)),
        ["sandbox 1"],
        id="on-failure-a-new-sandbox-for-what-failed",
    ),
    pytest.param(
        pod(container("a"), container("b"), restartPolicy="Never"),
        seen(one(BASE, "a", DEAD, exit_code=1), one(BASE, "b")),
        facts(),
        [],
        id="never-the-others-run-on",
    ),
    pytest.param(
        pod(container("a"), restartPolicy="Never"),
        seen(one(BASE, "a", DEAD, exit_code=1)),
        facts(),
        ["stop s0"],
        id="all-dead-the-sandbox-goes",
    ),
    pytest.param(
        BASE,
        seen(*running(BASE, "a", "c"), one(BASE, "b", annotations={HASH: "1"})),
        facts(),
        ["kill b"],
        id="another-definition",
    ),
    pytest.param(
        BASE,
        seen(*running(BASE, "a", "b", "c")),
        facts(probes={"b0": ProbeState(started=True, ready=False, live=False)}),
        ["kill b"],
        id="failed-liveness",
    ),
    pytest.param(
        pod(container("a", startupProbe={"exec": {}})),
        seen(one(BASE, "a")),
        facts(probes={"a0": ProbeState(started=False, ready=False, live=False)}),
        ["kill a"],
        id="failed-startup",
    ),
    pytest.param(
        pod(container("a"), restartPolicy="OnFailure"),
        seen(one(BASE, "a", DEAD, exit_code=0)),
        facts(restart_wanted=frozenset({"a0"}), images=Present(1)),
        ["start a/1"],
        id="killed-for-its-probe-is-restarted-whatever-its-exit-code",
    ),
    pytest.param(INIT, seen(), facts(), ["start i1/0"], id="first-init-container"),
    pytest.param(INIT, seen(one(INIT, "i1")), facts(), [], id="init-running"),
    pytest.param(INIT, seen(one(INIT, "i1", DEAD)), facts(), ["start i2/0"], id="next-init-container"),
    pytest.param(
        INIT,
        seen(one(INIT, "i1", DEAD, exit_code=1)),
        facts(images=Present(1)),
        ["start i1/1"],
        id="failed-init-is-restarted",
    ),
    pytest.param(
        pod(container("a"), restartPolicy="Never", initContainers=[container("i1"), container("i2")]),
        seen(one(INIT, "i1", DEAD, exit_code=1)),
        facts(),
        ["stop s0"],
        id="failed-init-never",
    ),
    pytest.param(INIT, seen(one(INIT, "i3", DEAD)), facts(), ["start a/0"], id="initialized-earlier-records-gone"),
    pytest.param(INIT, seen(one(INIT, "a")), facts(), [], id="initialized-all-init-records-gone"),
    pytest.param(
        INIT,
        seen(one(INIT, "i3", DEAD, sandbox_id="old")),
        facts(),
        ["start i1/0"],
        id="records-of-another-sandbox-do-not-count",
    ),
    pytest.param(
        INIT,
        seen(one(INIT, "i1", DEAD), sandboxes=(box(ready=False),)),
        facts(stopped_sandboxes=frozenset({"s0"}), images=Present(1)),
        ["remove i10", "sandbox 1"],
        id="a-new-sandbox-purges-init-records",
    ),
    pytest.param(SIDECAR, seen(), facts(), ["start s1/0"], id="sidecar-first"),
    pytest.param(SIDECAR, seen(one(SIDECAR, "s1")), facts(), ["start i2/0"], id="then-what-follows-it"),
    pytest.param(PROBED, seen(one(PROBED, "s1")), facts(), [], id="but-not-before-its-first-startup-probe"),
    pytest.param(
        PROBED,
        seen(one(PROBED, "s1")),
        facts(probes={"s10": ProbeState(started=False, ready=False)}),
        [],
        id="nor-before-that-has-succeeded",
    ),
    pytest.param(
        PROBED,
        seen(one(PROBED, "s1")),
        facts(probes={"s10": ProbeState(started=True, ready=True)}),
        ["start i2/0"],
        id="a-sidecar-that-has-started-lets-the-next-begin",
    ),
    pytest.param(
        PROBED,
        seen(one(PROBED, "s1")),
        facts(probes={"s10": ProbeState(started=False, ready=False, live=False)}),
        ["kill s1"],
        id="a-sidecar-whose-startup-probe-has-failed",
    ),
    pytest.param(
        SIDECAR,
        seen(one(SIDECAR, "s1"), one(SIDECAR, "i2", DEAD)),
        facts(),
        ["start a/0"],
        id="then-the-main-container",
    ),
    pytest.param(
        SIDECAR,
        seen(one(SIDECAR, "s1", DEAD, exit_code=1), one(SIDECAR, "i2", DEAD), one(SIDECAR, "a")),
        facts(images=Present(1)),
        ["start s1/1"],
        id="a-dead-sidecar-is-restarted",
    ),
    pytest.param(
        pod(container("a"), restartPolicy="Never", initContainers=SIDECAR.spec["initContainers"]),
        seen(one(SIDECAR, "s1"), one(SIDECAR, "i2", DEAD), one(SIDECAR, "a", DEAD)),
        facts(),
        ["kill s1"],
        id="sidecars-do-not-outlive-the-main-containers",
    ),
    pytest.param(
        pod(container("a"), restartPolicy="Never", initContainers=SIDECAR.spec["initContainers"]),
        seen(one(SIDECAR, "s1", DEAD), one(SIDECAR, "i2", DEAD), one(SIDECAR, "a", DEAD)),
        facts(),
        ["stop s0"],
        id="and-are-not-restarted-then",
    ),
    pytest.param(
        pod(container("a"), ephemeralContainers=[container("debug")]),
        seen(one(BASE, "a")),
        facts(),
        ["start debug/0"],
        id="ephemeral",
    ),
    pytest.param(
        pod(container("a", lifecycle={"postStart": {"exec": {}}}), container("b")),
        seen(),
        facts(),
        ["start a/0"],
        id="a-post-start-hook-holds-the-next-one",
    ),
    pytest.param(
        BASE,
        seen(
            one(BASE, "a", DEAD, 0, exit_code=1),
            one(BASE, "a", DEAD, 1, exit_code=1),
            one(BASE, "a", DEAD, 2, exit_code=1),
            one(BASE, "a", RunState.RUNNING, 3),
            *running(BASE, "b", "c"),
        ),
        facts(),
        ["remove a1", "remove a0"],
        id="old-attempts-go-but-for-the-last",
    ),
    pytest.param(
        BASE,
        seen(*running(BASE, "a", "b", "c")),
        facts(termination=Termination(Cause.DELETED, NOW, 30)),
        ["kill a", "kill b", "kill c"],
        id="ending-kills",
    ),
    pytest.param(
        SIDECAR,
        seen(one(SIDECAR, "s1"), one(SIDECAR, "a")),
        facts(termination=Termination(Cause.DELETED, NOW, 30)),
        ["kill a"],
        id="ending-main-before-sidecar",
    ),
    pytest.param(
        SIDECAR,
        seen(one(SIDECAR, "s1"), one(SIDECAR, "a")),
        facts(termination=Termination(Cause.DELETED, NOW - 31, 30)),
        ["kill s1", "kill a"],
        id="ending-all-at-once-after-the-grace",
    ),
    pytest.param(
        BASE, seen(), facts(termination=Termination(Cause.DELETED, NOW, 30)), ["stop s0"], id="ending-sandbox"
    ),
    pytest.param(
        BASE,
        seen(),
        facts(termination=Termination(Cause.DELETED, NOW, 30), stopped_sandboxes=frozenset({"s0"})),
        ["release"],
        id="ending-release",
    ),
    pytest.param(
        pod(container("a"), meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        seen(),
        facts(termination=Termination(Cause.DELETED, NOW, 30), stopped_sandboxes=frozenset({"s0"}), released=True),
        ["confirmdeletion"],
        id="ending-confirm",
    ),
    pytest.param(
        BASE,
        seen(one(BASE, "a", DEAD)),
        facts(termination=Termination(Cause.FINISHED, NOW, 30), stopped_sandboxes=frozenset({"s0"}), released=True),
        [],
        id="finished-records-stay",
    ),
    pytest.param(
        BASE,
        seen(one(BASE, "a", DEAD)),
        facts(termination=Termination(Cause.REMOVED, NOW, 30), stopped_sandboxes=frozenset({"s0"}), released=True),
        ["remove a0"],
        id="removed-records-go",
    ),
    pytest.param(
        BASE,
        seen(sandboxes=()),
        facts(termination=Termination(Cause.REMOVED, NOW, 30), released=True),
        ["removepod"],
        id="removed-last-its-logs",
    ),
]


@pytest.mark.parametrize(("of", "observed", "known", "steps"), CASES)
def test_steps(of: Pod, observed: ObservedPod, known: Facts, steps: list[str]) -> None:
    assert words_of(plan_pod(of, observed, known)) == steps


def test_a_container_in_back_off_waits_and_shows_it() -> None:
    key = backoff_key(BASE.container("b")[1])  # type: ignore[index]
    dead = one(BASE, "b", DEAD, 2, exit_code=1)
    plan = plan_pod(
        BASE, seen(*running(BASE, "a", "c"), dead), facts(backoff={key: BackOff(40, NOW - 5)}, images=Present(3))
    )
    assert plan.steps == ()
    assert plan.wait_until == dead.finished_at / 1e9 + 40
    waiting = plan.waiting["b"]
    assert waiting.reason == "CrashLoopBackOff"
    assert waiting.message.startswith("back-off 40s restarting failed container=b pod=web_shop(")


def test_a_failed_step_waits_for_its_retry_time() -> None:
    failure = Failure("CreateContainerError", "no space left", NOW + 3)
    plan = plan_pod(pod(container("a")), seen(), facts(failures={"a": failure}))
    assert plan.steps == ()
    assert plan.wait_until == NOW + 3
    assert plan.waiting["a"].reason == "CreateContainerError"
    assert "no space left" in plan.reason


def test_the_plan_waits_until_the_deadline() -> None:
    of = pod(container("a"), activeDeadlineSeconds=60, status={"startTime": "2026-01-01T00:00:00Z"})
    assert plan_pod(of, seen(one(BASE, "a")), facts()).wait_until == NOW + 60


def test_without_a_ready_network_only_host_network_pods_start() -> None:
    known = facts(network_ready=False)
    assert words_of(plan_pod(BASE, seen(sandboxes=()), known)) == []
    assert words_of(plan_pod(pod(container("a"), hostNetwork=True), seen(sandboxes=()), known)) == ["sandbox 0"]


@pytest.mark.parametrize(
    ("since", "grace"), [(0.0, 4), (0.001, 4), (0.999, 4), (1.5, 3), (3.9, 1), (4.0, 0), (9.0, 0)], ids=str
)
def test_the_grace_is_rounded_up_to_whole_seconds(since: float, grace: int) -> None:
    """Rounded down, each pod would lose up to a second."""
    known = facts(termination=Termination(Cause.DELETED, NOW - since, 4))
    kill = plan_pod(BASE, seen(*running(BASE, "a")), known).steps[0]
    assert kill.grace == grace  # type: ignore[union-attr]


def test_a_probe_can_have_its_own_grace() -> None:
    probe: Json = {"exec": {}, "terminationGracePeriodSeconds": 7}
    of = pod(container("a", livenessProbe=probe), terminationGracePeriodSeconds=60)
    known = facts(probes={"a0": ProbeState(started=True, ready=True, live=False)})
    kill = plan_pod(of, seen(one(of, "a")), known).steps[0]
    assert kill.grace == 7  # type: ignore[union-attr]


def test_containers_have_the_kind_of_the_list_they_are_in() -> None:
    assert [kind for kind, _ in SIDECAR.containers()] == [Kind.INIT, Kind.INIT, Kind.MAIN]


# --- image volumes


def mounting(*volumes: Json, **fields: Any) -> Pod:
    mounts = [{"name": one["name"], "mountPath": f"/{one['name']}"} for one in volumes]
    return pod(container("a", volumeMounts=mounts, **fields), container("b"), volumes=list(volumes))


DATA: Json = {"name": "data", "image": {"reference": "r/data:1", "pullPolicy": "Always"}}


def test_volume_images_are_pulled_before_the_containers_own() -> None:
    of = mounting(DATA, {"name": "disk", "emptyDir": {}})
    none = plan_pod(of, seen(), facts(of, images={}))
    ensures = [(step.container["name"], step.volume) for step in none.steps if isinstance(step, EnsureImage)]
    assert ensures == [("a", DATA), ("b", None)]
    pulled = ImageState(0, ImagePhase.PRESENT, ref="sha256:2", facts=ImageFacts("sha256:2"))
    own = plan_pod(of, seen(), facts(of, images={"volume/data": pulled}))
    ensures = [(step.container["name"], step.volume) for step in own.steps if isinstance(step, EnsureImage)]
    assert ensures == [("a", None), ("b", None)]


def test_a_container_waits_for_the_image_of_its_volume() -> None:
    of = mounting(DATA)
    why = Waiting("ErrImagePull", "no such image")
    failed = ImageState(0, ImagePhase.FAILED, waiting=why, retry_at=NOW + 5)
    there = {name: ImageState(0, ImagePhase.PRESENT, ref="x", facts=ImageFacts("x")) for name in ("a", "b")}
    found = plan_pod(of, seen(), facts(of, images={"volume/data": failed, **there}))
    assert [step.container["name"] for step in found.steps if isinstance(step, Start)] == ["b"]
    assert found.waiting == {"a": why} and found.wait_until == NOW + 5
