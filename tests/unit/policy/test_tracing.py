"""The spans of policy syncs, and of a pod that waits for its policies."""

from __future__ import annotations

import asyncio
from typing import Any

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.nft.traced import TracedBatches
from nodelib.tasks import cancel_and_wait
from nodelib.traces.model import Span, SpanContext
from nodelib.traces.sampling import ALL
from nodelib.traces.steps import NOT_TRACED, Tracer
from policy.enforcer import Enforcer
from policy.plan import parse
from policy.plan.program import Planner
from policy.protection import Protection, read
from policy.tracing import PolicyTracing
from tests.builders.policies import apps, pod, policy
from tests.fakes.clock import FakeClock
from tests.fakes.policies import Silent, Watched
from tests.fakes.policy_kernel import FakePolicyTable
from tests.unit.policy.test_enforcer import MemoryFile
from tests.waiting import until

A, B = "10.0.0.1", "10.0.0.2"
SANDBOX = SpanContext(b"t" * 16, b"s" * 8)


class World(Watched):
    """One family of a daemon that traces."""

    def __init__(self, per_million: int = ALL) -> None:
        self.table, self.clock, self.spans = FakePolicyTable(), FakeClock(), list[Span]()
        self.traces = PolicyTracing(Tracer(self.spans.append, per_million, self.clock))
        seen = TracedBatches(self.table, "nodewright-policy", Family.IPV4)
        planners = {Family.IPV4: Planner(Family.IPV4, "node1", report=False)}
        self.enforcer = Enforcer({Family.IPV4: seen}, planners, self.clock, Silent(), traces=self.traces)
        self.protection = Protection(self.enforcer, MemoryFile(), {}, lambda: "")
        self.enforcer.set_namespace("a", {})
        self.pods(pod("a1", A), pod("a2", B))

    async def begun(self) -> World:
        self.enforcer.start()
        await self.enforcer.sync()
        self.spans.clear()
        return self

    def syncs(self) -> list[Span]:
        return [one for one in self.spans if one.name == "sync policies"]

    def below(self, above: Span) -> dict[str, Span]:
        return {one.name: one for one in self.spans if one.parent == above.context.span}

    async def asks(self, **question: Any) -> Json:
        """As the daemon answers the pod network."""
        name, uid, _ = read(question)
        with self.traces.wait(question) as span:
            answer = await self.protection.answer(question)
            if span is not None:
                self.traces.waited(span, name, uid, answer)
        return answer


async def test_an_applied_change_is_one_trace_from_when_it_was_queued() -> None:
    world = await World().begun()
    queued = world.clock.now()
    world.policies(policy(ingress=[{"from": [apps("a2")]}], policyTypes=["Ingress"]))
    await world.clock.advance(3)
    await world.enforcer.sync()
    (sync,) = world.syncs()
    assert (sync.begin, sync.seconds, sync.parent, sync.error) == (queued, 3, b"", "")
    parts = world.below(sync)
    assert set(parts) == {"change queued", "plan", "write", "read"}
    assert parts["write"].attributes["nodewright.tables"] == "nodewright-policy"
    assert parts["change queued"].seconds == 3
    counts = {key: value for key, value in sync.attributes.items() if isinstance(value, int)}
    assert counts["nodewright.changes"] == 1 and sync.attributes["nodewright.sync"] == "partial"
    # Both pods are led to the chain of their group, and to themselves; one set has the peer.
    assert counts["nodewright.elements.added"] >= 3 and counts["nodewright.elements.removed"] == 0
    assert counts["nodewright.sets"] >= 2 and counts["nodewright.chains"] >= 2 and counts["nodewright.rules"] >= 2


async def test_the_first_sync_is_whole_and_what_is_undone_is_counted() -> None:
    world = World()
    world.policies(policy())
    world.enforcer.start()
    await world.enforcer.sync()
    assert world.syncs()[0].attributes["nodewright.sync"] == "full"
    world.spans.clear()
    world.enforcer.set_policy(parse.policy(policy())[0].name, None)
    await world.enforcer.sync()
    (sync,) = world.syncs()
    assert int(sync.attributes["nodewright.elements.removed"]) >= 2
    assert sync.attributes["nodewright.elements.added"] == 0


async def test_what_changes_nothing_here_is_no_trace() -> None:
    world = World()
    await world.enforcer.sync()  # nothing is written yet
    assert world.spans == []
    await world.begun()
    world.pods(pod("elsewhere", "10.0.9.9", node="node2"))
    await world.enforcer.sync()
    assert world.spans == []


async def test_a_refusal_is_the_error_of_the_sync() -> None:
    world = await World().begun()
    world.table.refuse = 1
    world.policies(policy())
    task = asyncio.create_task(world.enforcer.runner.run())
    await until(world.syncs, clock=world.clock, advance=0.1)
    sync = world.syncs()[0]
    assert "no memory" in sync.error and "no memory" in world.below(sync)["write"].error
    await until(lambda: len(world.syncs()) == 2, clock=world.clock, advance=0.1)
    assert (world.syncs()[1].error, world.syncs()[1].attributes["nodewright.sync"]) == ("", "full")
    await cancel_and_wait(task)


async def test_a_pod_s_wait_is_part_of_its_own_trace_and_names_the_sync() -> None:
    world = await World(per_million=ALL).begun()
    world.policies(policy())
    await world.enforcer.sync()
    world.spans.clear()
    task = asyncio.create_task(world.enforcer.runner.run())
    world.pods(pod("new", uid="u1"))
    question = {"namespace": "a", "name": "new", "uid": "u1", "addresses": ["10.0.0.9"]}
    answer = await world.asks(**question, traceparent=SANDBOX.traceparent)
    assert answer == {"protected": True}
    (wait,) = (one for one in world.spans if one.name == "wait for network policies")
    assert (wait.context.trace, wait.parent, wait.error) == (SANDBOX.trace, SANDBOX.span, "")
    assert wait.attributes == {"k8s.namespace.name": "a", "k8s.pod.name": "new", "k8s.pod.uid": "u1"}
    assert set(world.below(wait)) == {"see the pod in the API", "wait for the sync"}
    assert wait.links[0] in [one.context for one in world.syncs()]
    await cancel_and_wait(task)


async def test_a_pod_that_may_not_run_is_an_error() -> None:
    world = await World().begun()
    asked = asyncio.create_task(
        world.asks(namespace="a", name="unknown", uid="u1", addresses=[A], traceparent=SANDBOX.traceparent)
    )
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    (wait,) = (one for one in world.spans if one.name == "wait for network policies")
    assert wait.error == "interrupted"
    span = world.traces.wait({"traceparent": SANDBOX.traceparent})
    with span as made:
        assert made is not None
        world.traces.waited(made, *read({"namespace": "a", "name": "x"})[:2], {"protected": False, "error": "x" * 9999})
        assert made.error and len(made.error) <= 1024


def test_a_pod_that_is_not_traced_makes_nothing() -> None:
    assert World().traces.wait({}) is World().traces.wait({"traceparent": "00-x"}) is NOT_TRACED
