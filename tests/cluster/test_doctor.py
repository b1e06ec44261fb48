"""`doctor` on a real cluster: a route that is gone is an error, and nothing of the kind is said of a healthy node."""

from __future__ import annotations

import os

import pytest

from tests.cluster.test_trace import nodewright
from tests.cluster.world import World, holds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]


async def test_a_lost_route_is_an_error(world: World) -> None:
    cidr = (await world.api.get("/api/v1/nodes/node2"))["spec"]["podCIDR"]

    async def has_route() -> bool:
        return cidr in (await world.in_node("node1", "ip", "route", "show")).text

    await holds(has_route, "node1 has a route to the pods of node2")
    async with world.stopped_agent("node1", 240):  # it would set the route again
        await world.in_node("node1", "ip", "route", "del", cidr)
        status, text = await nodewright(world, "doctor")
        assert status == 1 and f"route to node2: there is no route to {cidr}" in text, text
        assert "agent.log says why" in text and "route to node1" not in text, text
    await holds(has_route, "the agent sets it again, as the remedy says")
