"""The spans of a pod: the tree of its start, what comes later, and the same record read again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from agent.common.model.pods import ImageFacts, ObservedPod, ProbeState, SandboxState
from agent.explain.model import Explanation, TimelineLine
from agent.pods.model.timeline import Activity, ActivityKind, TimelineEntry
from agent.pods.plan.scheduled import Scheduled, scheduled_of
from agent.pods.plan.spans import TracedPod, record_spans
from agent.pods.plan.starting import is_new
from cli.why.recorded import as_spans
from nodelib.json_values import Json
from nodelib.traces.current import current
from nodelib.traces.model import Span, SpanContext
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock, settle
from tests.fakes.pod_world import World

Tree = dict[str, "Tree"]


@pytest.fixture(autouse=True)
def _ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two moments are the same, as with a real clock: ids of spans are made from when they began."""

    def now(clock: FakeClock) -> float:
        clock.step(1e-6)
        return clock._now

    monkeypatch.setattr(FakeClock, "now", now)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.traced = 1_000_000
    await made.start_agent()
    yield made
    await made.kill_agent()


def tree(spans: list[Span]) -> Tree:
    """Names of spans below the names of their parents; a name that comes again counts once."""
    nodes: dict[tuple[bytes, bytes], Tree] = {(one.context.trace, one.context.span): {} for one in spans}
    names = [one.name for one in spans]
    assert len(nodes) == len(spans), sorted(names)
    top: Tree = {}
    for one in sorted(spans, key=lambda one: one.begin):
        above = nodes[one.context.trace, one.parent] if one.parent else top
        mine, known = nodes[one.context.trace, one.context.span], above.get(one.name)
        if known is None:
            above[one.name] = mine
        else:
            known.update({**mine, **known})
            nodes[one.context.trace, one.context.span] = known
    return top


def start_of(world: World) -> list[Span]:
    root = next(one for one in world.spans if one.name == "pod start")
    return [one for one in world.spans if one.context.trace == root.context.trace]


async def test_a_start_is_one_trace_from_the_source_until_the_api_shows_it_ready(world: World) -> None:
    world.cri.registry["app:1"] = ImageFacts("sha256:2", ("app:1",), size=20 << 20)
    world.cri.before["pull_image"] = lambda reference: world.clock.sleep(3)
    hooked = container(image="app:1", lifecycle={"postStart": {"sleep": {"seconds": 2}}})
    world.create(hooked, initContainers=[container("one")])
    await world.until(lambda: world.cri.running() == ["one"])
    world.cri.exit("one")
    await world.until(world.is_ready)
    assert tree(start_of(world)) == {
        "pod start": {
            "admit": {},
            "container ran": {},
            "plan": {},
            "pull image": {},
            "tell that it is ready": {},
            "syncPod": {
                "prepare": {"cgroup": {}, "mount volumes": {}},
                "create sandbox": {},
                "look for image": {},
                "start container": {"create container": {}, "run container": {}, "postStart hook": {}},
            },
        }
    }
    by_name = {one.name: one for one in start_of(world)}
    assert by_name["pull image"].seconds >= 3 and by_name["postStart hook"].seconds >= 2
    root = by_name["pod start"]
    assert all(
        root.begin <= one.begin and one.begin + one.seconds <= root.begin + root.seconds + 1e-6
        for one in start_of(world)
    )
    assert root.attributes["k8s.pod"] == "shop/web" and not root.error
    assert by_name["syncPod"].attributes["k8s.pod"] == "shop/web"
    assert by_name["postStart hook"].attributes == {"k8s.container.name": "main"}  # its pod is that of the trace


async def test_the_runtime_is_called_for_the_span_of_the_step(world: World) -> None:
    seen: dict[str, SpanContext | None] = {}

    async def note(name: str) -> None:
        seen[name] = current()

    world.cri.registry["app:1"] = ImageFacts("sha256:2", ("app:1",), size=20 << 20)
    for call in ("run_sandbox", "pull_image", "create_container", "start_container"):
        world.cri.before[call] = lambda *_, call=call: note(call)
    world.create(container(image="app:1"))
    await world.until(world.is_ready)
    spans = {one.context: one.name for one in start_of(world)}
    assert {call: spans.get(one) if one else None for call, one in seen.items()} == {
        "run_sandbox": "create sandbox",
        "pull_image": "pull image",
        "create_container": "create container",
        "start_container": "run container",
    }
    assert current() is None


async def test_the_pod_network_is_told_of_the_sandbox_that_is_being_made(world: World) -> None:
    contexts: list[SpanContext | None] = []

    def asked() -> SpanContext | None:
        memory = world.registry.memory("u1")
        return None if memory is None else memory.timeline.span_of(Activity(ActivityKind.SANDBOX))

    async def note() -> None:
        contexts.append(asked())

    world.cri.before["run_sandbox"] = lambda *_: note()
    world.create(container())
    await world.until(world.is_ready)
    assert contexts == [one.context for one in start_of(world) if one.name == "create sandbox"]
    assert asked() is None


async def test_a_probe_is_a_span_from_the_start_of_its_container(world: World) -> None:
    world.create(container(readinessProbe={"exec": {"command": ["true"]}}))
    await world.until(lambda: bool(world.cri.running()))
    (found,) = world.registry.observed("u1").containers
    world.probes.answers["u1"] = {found.id: ProbeState(started=True, ready=False)}
    world.registry.wake("u1")
    await world.clock.advance(4)
    world.probes.answers["u1"] = {found.id: ProbeState(started=True, ready=True)}
    world.registry.wake("u1")
    await world.until(world.is_ready)
    (probe,) = (one for one in start_of(world) if one.name == "first probe")
    assert probe.seconds >= 4 and probe.begin == pytest.approx(found.started_at / 1e9)


async def test_what_is_done_later_is_a_trace_of_its_own_with_a_link_to_the_start(world: World) -> None:
    world.create(terminationGracePeriodSeconds=1)
    await world.until(world.is_ready)
    root = next(one for one in world.spans if one.name == "pod start")
    world.forget_spans()
    world.cri.exit("main")
    await world.until(lambda: len(world.cri.done("start_container")) == 2)
    world.api.ask_deletion("u1", 1)
    await world.until(world.is_gone)
    roots = [one for one in world.spans if not one.parent]
    assert {one.name for one in roots} == {"syncPod", "syncTerminatingPod", "syncTerminatedPod"}
    assert len({one.context.trace for one in roots}) == len(roots)
    assert all(one.links == (root.context,) and one.context.trace != root.context.trace for one in roots)
    assert "stop container" in tree(world.spans)["syncTerminatingPod"]


async def test_a_start_that_never_ends_well_says_so(world: World) -> None:
    world.volumes.missing = "no such secret"
    world.create()
    await world.clock.advance(5)
    assert not any(one.name == "pod start" for one in world.spans)
    world.api.ask_deletion("u1", 1)
    await world.until(world.is_gone)
    (root,) = (one for one in world.spans if one.name == "pod start")
    assert root.error == "it ended before it was ready"
    failed = [one for one in start_of(world) if one.name == "mount volumes"]
    assert failed and all("no such secret" in one.error for one in failed)


async def test_a_restarted_agent_makes_no_second_start_of_a_pod(world: World) -> None:
    world.create()
    await world.until(world.is_ready)
    await world.kill_agent()
    world.forget_spans()
    await world.start_agent()
    await world.clock.advance(5)
    assert not any(one.name in ("pod start", "admit") for one in world.spans)


@pytest.mark.parametrize("rate", [0, 1])
async def test_a_pod_that_is_not_sampled_has_no_spans(rate: int) -> None:
    world = World()
    world.traced = rate
    await world.start_agent()
    world.create()
    await world.until(world.is_ready)
    await world.kill_agent()
    assert world.spans == []


POD = TracedPod("u1", "shop", "web")


def entry(kind: ActivityKind, at: float, seconds: float | None = 1.0, **more: object) -> TimelineEntry:
    container_name = str(more.pop("of_container", ""))
    return TimelineEntry(at, Activity(kind, container_name), seconds, **more)  # type: ignore[arg-type]


RECORDS: Mapping[str, tuple[list[TimelineEntry], Tree]] = {
    "a whole start": (
        [
            entry(ActivityKind.ADMIT, 10.0, 0.1),
            entry(ActivityKind.SANDBOX, 10.2, 2.0),
            entry(ActivityKind.NETWORK, 10.5, 1.0, of=Activity(ActivityKind.SANDBOX)),
            entry(ActivityKind.READY, 13.0, 0.0),
            entry(ActivityKind.SHOWN_READY, 13.0, 0.1),
        ],
        {"pod start": {"admit": {}, "create sandbox": {"CNI ADD": {}}, "tell that it is ready": {}}},
    ),
    "a part of the newest of two rounds": (
        [
            entry(ActivityKind.SANDBOX, 10.0, 1.0, times=2, last_at=20.0),
            entry(ActivityKind.NETWORK, 20.5, 0.2, of=Activity(ActivityKind.SANDBOX)),
        ],
        {"pod start": {"create sandbox": {"CNI ADD": {}}}},
    ),
    "what came after the start stands beside it": (
        [
            entry(ActivityKind.SHOWN_READY, 13.0, 0.1),
            entry(ActivityKind.STOP, 50.0, 1.0, of_container="app"),
        ],
        {"pod start": {"tell that it is ready": {}}, "stop container": {}},
    ),
    "nothing yet": ([], {"pod start": {}}),
}


@pytest.mark.parametrize(("entries", "expected"), RECORDS.values(), ids=RECORDS)
def test_a_record_is_a_trace(entries: list[TimelineEntry], expected: Tree) -> None:
    spans = record_spans(POD, {}, entries, now=60.0)
    assert tree(spans) == expected
    assert {one.context.trace for one in spans} == {POD.context.trace}


def test_what_is_under_way_lasts_until_now_and_the_start_says_that_it_is_not_over() -> None:
    spans = {one.name: one for one in record_spans(POD, {}, [entry(ActivityKind.SANDBOX, 10.0, None)], now=60.0)}
    assert spans["create sandbox"].seconds == 50.0
    assert (spans["pod start"].begin, spans["pod start"].seconds) == (10.0, 50.0)
    assert spans["pod start"].error == "it is not ready"


@pytest.mark.parametrize(("seen", "waits"), [(100.9, False), (130.0, True)])
def test_a_wait_for_a_node_is_told_only_if_whole_seconds_tell_it(seen: float, waits: bool) -> None:
    pod = TracedPod("u1", "shop", "web", created=100.0)
    spans = {one.name: one for one in record_spans(pod, {}, [entry(ActivityKind.ADMIT, seen)], now=seen + 5)}
    assert ("wait for a node" in spans) is waits
    assert spans["pod start"].begin == (100.0 if waits else seen)


def timed(queued: str, bound: str) -> Json:
    """Metadata with what the scheduler writes; seconds of one minute."""
    names = ("nodewright.io/queued-at", "nodewright.io/bound-at")
    values = [f"1970-01-01T00:00:{one}Z" if one else "" for one in (queued, bound)]
    return {"annotations": dict(zip(names, values, strict=True))}


SCHEDULED: Mapping[str, tuple[tuple[str, str], Scheduled | None]] = {
    "as the scheduler writes it": (("01.25", "01.5"), Scheduled(1.25, 1.5)),
    "bound before it was queued": (("01.5", "01.25"), None),
    "queued before the API says that it was created": (("00.9", "01.5"), None),
    "bound after the node heard of it": (("01.25", "02.5"), None),
    "no times": (("x", ""), None),
    "one is missing": (("01.25", ""), None),
}


@pytest.mark.parametrize(("written", "expected"), SCHEDULED.values(), ids=SCHEDULED)
def test_times_of_the_scheduler_are_believed_only_where_they_can_be(
    written: tuple[str, str], expected: Scheduled | None
) -> None:
    assert scheduled_of(timed(*written), created=1.0, seen=2.0) == expected


@pytest.mark.parametrize("meta", [{}, {"annotations": None}, {"annotations": {"nodewright.io/queued-at": 7}}])
def test_a_pod_without_times_of_the_scheduler_has_none(meta: Json) -> None:
    assert scheduled_of(meta, created=1.0, seen=2.0) is None


def test_a_wait_that_the_scheduler_timed_is_told_to_the_millisecond() -> None:
    pod = TracedPod("u1", "shop", "web", 10.0)
    spans = record_spans(pod, timed("10.25", "10.5"), [entry(ActivityKind.ADMIT, 10.75)], now=13.0)
    assert tree(spans) == {"pod start": {"wait for a node": {"schedule": {}, "bind": {}}, "admit": {}}}
    assert {one.name: (one.begin, one.seconds) for one in spans} == {
        "pod start": (10.25, 2.75),
        "wait for a node": (10.25, 0.5),
        "schedule": (10.25, 0.25),
        "bind": (10.5, 0.25),
        "admit": (10.75, 1.0),
    }


def test_a_pod_that_was_there_before_the_scheduler_has_waited_since_it_was_created() -> None:
    pod = TracedPod("u1", "shop", "web", 10.0)
    spans = record_spans(pod, timed("17.25", "17.5"), [entry(ActivityKind.ADMIT, 17.75)], now=19.0)
    assert tree(spans) == {"pod start": {"wait for a node": {"schedule": {}, "bind": {}}, "admit": {}}}
    found = {one.name: (one.begin, one.seconds) for one in spans}
    assert found["pod start"] == (10.0, 9.0) and found["wait for a node"] == (10.0, 7.75)
    assert found["schedule"] == (17.25, 0.25)
    (wait,) = (one for one in spans if one.name == "wait for a node")
    assert wait.attributes["nodewright.precision"] == "1s", "nobody has timed the creation"


def test_a_record_that_began_before_the_pod_was_bound_has_no_scheduler() -> None:
    """Whoever may create pods may write the times, too, and a later reader has only the record to compare them with."""
    pod = TracedPod("u1", "shop", "web", 10.0)
    spans = record_spans(pod, timed("10.25", "11.5"), [entry(ActivityKind.ADMIT, 10.75)], now=13.0)
    assert tree(spans) == {"pod start": {"admit": {}}}


async def test_a_plan_lasts_from_what_made_it_due(world: World) -> None:
    world.create(container(lifecycle={"postStart": {"sleep": {"seconds": 2}}}))
    await world.until(world.is_ready)
    plans = [one for one in start_of(world) if one.name == "plan"]
    steps = [one for one in start_of(world) if one.name in ("admit", "prepare", "create sandbox", "start container")]
    ends = {round(one.begin + one.seconds, 6) for one in steps}
    assert plans and {round(one.begin, 6) for one in plans} <= ends


async def test_a_pod_that_stays_unready_makes_no_plans_without_end(world: World) -> None:
    world.create(container(readinessProbe={"httpGet": {"port": 80}}))
    await world.until(lambda: world.cri.running() == ["main"])
    await world.until(lambda: not world.registry.workers["u1"].memory.plan.steps)
    before = [one for one in world.spans if one.name == "plan"]
    worker = world.registry.workers["u1"]
    for _ in range(20):
        worker.wake()
        await settle()
    assert [one for one in world.spans if one.name == "plan"] == before


async def test_the_record_read_later_has_the_ids_that_were_exported(world: World) -> None:
    world.create()
    await world.until(world.is_ready)
    memory = world.registry.memory("u1")
    assert memory is not None
    exported = {one.context for one in start_of(world)}
    read = record_spans(POD, {}, memory.timeline.entries(), world.clock.now())
    assert {one.name for one in read if one.context not in exported} == set()
    assert {"pod start", "admit", "create sandbox", "cgroup", "tell that it is ready"} <= {one.name for one in read}


def test_an_answer_of_the_node_is_a_trace_and_what_is_not_known_is_left_out() -> None:
    lines = (
        TimelineLine(10.0, "prepare", 1.0, kind="prepare"),
        TimelineLine(10.1, "volumes", 0.5, kind="volumes", of="prepare", of_kind="prepare"),
        TimelineLine(10.2, "mount of volume x", 0.2, kind="mount", volume="x", of="volumes", of_kind="volumes"),
        TimelineLine(10.3, "teleport", 0.2, kind="teleport"),
    )
    found = Explanation("shop", "web", "u1", "n1", "Running", "", timeline=lines)
    spans = as_spans(found, {}, 20.0)
    assert tree(spans) == {"pod start": {"prepare": {"mount volumes": {"mount volume": {}}}}}
    assert [one.attributes["k8s.volume.name"] for one in spans if one.name == "mount volume"] == ["x"]


SANDBOX = SandboxState("s1", "u1", "shop", "web", 0, True, 1)


@pytest.mark.parametrize(
    ("meta", "status", "sandboxes", "expected"),
    [
        ({}, {}, (), True),
        ({}, {"startTime": "2026-01-01T00:00:00Z"}, (), False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, (), False),
        ({}, {}, (SANDBOX,), False),
    ],
    ids=["nothing of it is there", "it has started", "it is deleted", "an agent that was killed has begun"],
)
def test_a_start_is_noted_once(meta: Json, status: Json, sandboxes: tuple[SandboxState, ...], expected: bool) -> None:
    assert is_new(pod(meta=meta, status=status), ObservedPod("u1", sandboxes=sandboxes)) is expected
