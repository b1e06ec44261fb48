"""What pods and policies are told in events: whom, in which words, and never in floods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.events import Events
from policy.drops.model import Drop, Flow, Near
from policy.events.plan import Pace, refused, whom
from policy.events.work import PolicyEvents
from policy.model import Direction, Name, Problem
from policy.plan import parse
from policy.plan.directory import Directory
from tests.builders.policies import block, pod, policy
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock

CLIENT, SERVER = Name("a", "client"), Name("b", "server")


def drop(direction: Direction = Direction.EGRESS, **more: Any) -> Drop:
    flow = Flow(direction, ip_address("10.0.0.1"), ip_address("10.0.1.3"), "UDP", 53)
    by = Name("a" if direction is Direction.EGRESS else "b", "p")
    near = (Near(by, "", "rule", "it has no rule"),)
    return replace(Drop(1, flow, 0.0, 0.0, 1, CLIENT, SERVER, (by,), near), **more)


@pytest.mark.parametrize(
    ("one", "about", "text"),
    [
        pytest.param(
            drop(),
            CLIENT,
            "packets of this pod to a pod of namespace b (10.0.1.3) port 53/UDP are refused: NetworkPolicy a/p "
            "isolates this pod (egress), and no rule allows it. It would be allowed by an egress rule in a/p for this "
            "peer and port 53/UDP.",
            id="egress",
        ),
        pytest.param(
            drop(Direction.INGRESS),
            CLIENT,
            "packets of this pod to a pod of namespace b (10.0.1.3) port 53/UDP are refused: NetworkPolicies of "
            "namespace b isolate that pod (ingress), and none of them allows it.",
            id="what is of another namespace has no name",
        ),
        pytest.param(
            drop(Direction.INGRESS, client=None),
            SERVER,
            "packets from 10.0.0.1 to port 53/UDP of this pod are refused: NetworkPolicy b/p isolates this pod "
            "(ingress), and no rule allows it. It would be allowed by an ingress rule in b/p for this peer and port "
            "53/UDP.",
            id="a client outside",
        ),
        pytest.param(
            drop(server=Name("a", "db"), policies=tuple(Name("a", f"p{n}") for n in range(9)), near=()),
            CLIENT,
            "packets of this pod to pod db (10.0.1.3) port 53/UDP are refused: NetworkPolicies a/p0, a/p1, a/p2, "
            "a/p3, a/p4 and 4 more isolate this pod (egress), and no rule allows it.",
            id="many policies",
        ),
    ],
)
def test_a_refused_packet_in_words(one: Drop, about: Name, text: str) -> None:
    assert whom(one) == about and refused(one, about) == text


def test_a_pod_hears_once_in_five_minutes_and_all_together_one_every_few_seconds() -> None:
    pace = Pace(at_once=3, seconds=5.0, apart=300.0)
    assert [pace.may(key, 100.0) for key in "aabcd"] == [True, False, True, True, False]
    assert [pace.may(key, 105.0) for key in "de"] == [True, False]
    assert not pace.may("a", 399.0) and pace.may("a", 401.0)


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 20)), max_size=300))
def test_no_flood_of_keys_is_faster_or_takes_more_memory(events: list[tuple[int, float]]) -> None:
    pace, now, passed = Pace(at_once=5, seconds=10.0, apart=1.0, keys=16), 0.0, 0
    for key, after in events:
        now += after
        passed += pace.may(key, now)
    assert passed <= 5 + now / 10 + 1 and len(pace._last) <= 16


@dataclass
class World:
    api: FakeApiServer
    policy_events: PolicyEvents
    directory: Directory
    clock: FakeClock
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def once(self, _: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.tasks.append(asyncio.ensure_future(work()))

    async def events(self) -> list[Json]:
        await asyncio.gather(*self.tasks)
        return [one for path, one in self.api.objects.items() if "/events/" in path]

    def policy(self, obj: Json, *problems: str) -> None:
        found, _ = parse.policy(obj)
        self.directory.set_policy(found.name, found)
        self.policy_events.policy(found.name, f"uid-{found.name.name}", [Problem("x", one) for one in problems])

    def pod(self, obj: Json) -> None:
        one = parse.pod(obj)
        self.directory.set_pod(one.name, one)
        self.policy_events.pod(one)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with FakeApiServer() as api, KubeClient(ClusterAccess(api.url), user_agent="test") as client:
        clock, directory = FakeClock(), Directory("node1")
        one: World
        policy_events = PolicyEvents(
            Events(client, "node1", clock, "nodewright-policy"),
            lambda name, work: one.once(name, work),
            directory,
            "node1",
            clock,
        )
        one = World(api, policy_events, directory, clock)
        yield one


def about(events: list[Json]) -> list[tuple[str, str, str, str]]:
    found = [(one["regarding"], one["reason"]) for one in events]
    return sorted((each["kind"], each["name"], reason, each.get("uid", "")) for each, reason in found)


async def test_what_was_left_out_is_told_on_the_policy_and_its_pods_on_this_node(world: World) -> None:
    world.pod(pod("early", "10.0.0.1"))
    world.pod(pod("away", "10.0.0.2", node="node2"))
    world.policy(policy("p", select=None), "spec.ingress[0].from[0]: no network")
    world.pod(pod("late", "10.0.0.3"))
    world.pod(pod("late", "10.0.0.3"))
    world.policy(policy("fine"))
    events = await world.events()
    assert about(events) == [
        ("NetworkPolicy", "p", "PartNotUnderstood", "uid-p"),
        ("Pod", "early", "NetworkPolicyPartNotUnderstood", "uid-early"),
        ("Pod", "late", "NetworkPolicyPartNotUnderstood", "uid-late"),
    ]
    assert events[0]["regarding"]["apiVersion"] == "networking.k8s.io/v1"
    assert all("spec.ingress[0].from[0]: no network" in one["note"] for one in events)


async def test_another_daemon_does_not_say_it_again(world: World) -> None:
    for _ in range(2):
        world.policy_events._policy_pace = Pace(at_once=9, seconds=1, apart=1)
        world.policy(policy("p"), "spec.ingress[0]: nonsense")
        assert len(await world.events()) == 1
    world.policy_events._policy_pace = Pace(at_once=9, seconds=1, apart=1)
    world.policy(policy("p"), "spec.ingress[0]: other nonsense")
    assert len(await world.events()) == 2


async def test_a_sync_that_failed_is_told_to_node_policies_and_pods_once_in_a_minute(world: World) -> None:
    world.pod(pod("one", "10.0.0.1"))
    world.policy(policy("old"))
    world.policy_events.synced()
    world.policy(policy("new"))
    world.policy_events.failed(RuntimeError("no memory"))
    world.policy_events.failed(RuntimeError("no memory"))
    assert about(await world.events()) == [
        ("NetworkPolicy", "new", "NetworkPolicyNotWritten", "uid-new"),
        ("Node", "node1", "NetworkPolicyNotWritten", ""),
        ("Pod", "one", "NetworkPolicyNotWritten", "uid-one"),
    ]
    await world.clock.advance(61)
    world.policy_events.failed(RuntimeError("no memory"))
    assert len(await world.events()) == 6


async def test_a_refused_packet_is_an_event_on_the_pod_that_wanted_to_connect(world: World) -> None:
    world.pod(pod("client", "10.0.0.1"))
    for _ in range(100):
        world.policy_events.refused(drop())
    (event,) = await world.events()
    assert event["reason"] == "NetworkPolicyDropped" and event["type"] == "Warning"
    assert about([event]) == [("Pod", "client", "NetworkPolicyDropped", "uid-client")]


async def test_a_policy_of_many_faults_is_one_event_and_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Each was an event and a line of the log, on each node, for each update."""
    faults = policy("p", ingress=[{"from": [block("010.0.0.0/8")] * 5000}])
    _, problems = parse.policy(faults)
    assert len(problems) == 5000
    for turn in range(60):
        world.policy(faults, *[one.message for one in problems[turn:]])
    (event,) = await world.events()
    assert "4997 more" in event["note"] and len(event["note"]) < 700
    assert len(caplog.records) == 1
    await world.clock.advance(61)
    world.policy(faults, "spec.ingress[0]: another fault")
    assert len(await world.events()) == 2, "who corrects a policy hears of what is left"


async def test_a_pod_does_not_go_through_thousands_of_policies_with_faults(world: World) -> None:
    """20,000 took the loop 5 ms for each change of any pod of the node, and 25 ms of one of their namespace."""
    for number in range(4000):
        world.policy(policy(f"p{number}", namespace="a" if number % 2 else "b"), "spec.ingress[0]: nonsense")
    began = time.process_time()
    for number in range(200):
        world.pod(pod("one", "10.0.0.1", namespace="a", labels={"turn": str(number)}))
        world.pod(pod("two", "10.0.0.2", namespace="c", labels={"turn": str(number)}))
    assert time.process_time() - began < 0.5
    assert len(await world.events()) < 100
    for number in range(4000):
        world.policy_events.policy_gone(Name("a" if number % 2 else "b", f"p{number}"))
    assert not world.policy_events._problems


async def test_many_policies_with_faults_hide_no_refused_packet_and_fill_no_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        world.policy(policy(f"p{number}"), "spec.ingress[0]: nonsense")
    world.policy_events.too_large({Name("a", f"p{number}") for number in range(1000)})
    assert len(await world.events()) == len(caplog.records) == 20
    world.policy_events.refused(drop())
    assert len(await world.events()) == 21


async def test_a_policy_without_room_is_told_once_until_it_has_had_room(world: World) -> None:
    world.policy(policy("p"))
    world.policy_events.cluster_policy("whole", "uid-whole", ())
    for _ in range(3):
        world.policy_events.too_large({Name("a", "p"), Name("", "whole")})
        await world.clock.advance(61)
    assert len(world.tasks) == 2
    events = await world.events()
    assert about(events) == [
        ("ClusterNetworkPolicy", "whole", "PolicyTooLarge", "uid-whole"),
        ("NetworkPolicy", "p", "PolicyTooLarge", "uid-p"),
    ]
    world.policy_events.too_large(set())
    await world.clock.advance(61)
    world.policy_events.too_large({Name("a", "p")})
    (again,) = [one for one in await world.events() if one["regarding"]["name"] == "p"]
    assert "too many or too large" in again["note"]
