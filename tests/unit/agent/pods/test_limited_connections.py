"""Pods that may begin few connections: an event once, a metric, and what `why` is told."""

from __future__ import annotations

from agent.pods.work.connections import LimitedConnections
from tests.builders.metrics import metrics, series
from tests.fakes.pod_world import World


async def test_the_pod_gets_an_event_once_and_why_is_told_until_it_is_over() -> None:
    world = World()
    await world.start_agent()
    try:
        world.create()
        await world.until(world.is_ready)
        pod = world.registry.workers["u1"].memory.pod
        counted = metrics()
        limited = LimitedConnections(world.registry, world.events, counted)
        name = f"{pod.namespace}/{pod.name}"
        limited.update({name: "it has 9 of 10", "10.0.0.9": "nobody's", "gone/pod": "it has 1"}, 5, 70)
        limited.update({name: "it has 8 of 10"}, 9, 100)
        found = [one for one in world.events.emitted if one[1] == "ConnectionsLimited"]
        assert found == [("Warning", "ConnectionsLimited", "it has 9 of 10")]
        assert limited.of(pod) == "it has 8 of 10"
        assert series(counted, "nodewright_connections_limited_pods") == {(): 1}
        assert series(counted, "nodewright_connections_deleted_total") == {(): 9}
        assert series(counted, "nodewright_connections_refused_packets_total") == {(): 100}
        limited.update({}, 9, 100)
        assert limited.of(pod) == ""
        assert series(counted, "nodewright_connections_limited_pods") == {(): 0}
    finally:
        await world.kill_agent()
