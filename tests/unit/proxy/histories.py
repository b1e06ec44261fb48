"""Random histories of three Services and their EndpointSlices."""

from __future__ import annotations

import random
from typing import Protocol

from hypothesis import strategies as st

from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint, endpoint_slice, service
from tests.unit.proxy.build import HERE

names = st.sampled_from(["a", "b", "c"])
pods = st.lists(st.integers(1, 4), max_size=3, unique=True)
steps = st.one_of(
    st.tuples(
        st.just("service"),
        names,
        st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"]),
        st.booleans(),
        st.booleans(),
    ),
    st.tuples(st.just("slice"), names, st.sampled_from("xy"), pods, st.sampled_from(["ready", "terminating", "not"])),
    st.tuples(st.just("drop"), names, st.sampled_from("xys"), st.none(), st.none()),
)
_STATES: dict[str, Json] = {
    "ready": {"ready": True},
    "terminating": {"ready": False, "serving": True, "terminating": True},
    "not": {"ready": False, "serving": False},
}


Step = tuple[str, str, object, object, object]
histories = st.lists(steps, min_size=1, max_size=25)


def object_of(step: Step) -> Json:
    """The Service or EndpointSlice that a step puts or drops."""
    kind, name, one, two, three = step
    if kind == "service" or one == "s":
        number = "abc".index(name)
        spec: Json = (
            {}
            if kind != "service"
            else {
                "type": one,
                "externalTrafficPolicy": "Local" if two else "Cluster",
                "internalTrafficPolicy": "Local" if three else "Cluster",
                "sessionAffinity": "ClientIP" if two and three else "None",
            }
        )
        ports = [
            {"name": "p80", "port": 80, "nodePort": 0 if spec.get("type") in (None, "ClusterIP") else 30000 + number}
        ]
        return service(name, f"172.30.0.{number + 1}", ports=ports, **spec)
    addresses = two if isinstance(two, list) else []
    found = [
        endpoint(f"10.1.{'abc'.index(name)}.{pod}", HERE if pod % 2 else "there", **_STATES[str(three or "ready")])
        for pod in addresses
    ]
    return endpoint_slice(name, found, suffix=str(one))


class Stepped(Protocol):
    """A world that is synced by `put`; after a failure its next sync is a full one."""

    tracker: Tracker
    started: bool

    async def put(self) -> object: ...


class Failing(Protocol):
    """A fake kernel that can be asked to fail."""

    fail_next: int


async def replay(history: list[Step], seed: int, world: Stepped, fake: Failing) -> None:
    """Every step, a sync after some of them, a sync that fails after a few; in the end one that does not."""
    chance = random.Random(seed)
    await world.put()
    for step in history:
        obj, gone = object_of(step), step[0] == "drop"
        (world.tracker.endpoint_slice if "endpoints" in obj else world.tracker.service)(obj, gone=gone)
        if chance.random() < 0.6:
            await world.put()
        if chance.random() < 0.1:
            fake.fail_next = 1
            try:
                await world.put()
            except NodewrightError:
                world.started = False
            fake.fail_next = 0
    await world.put()
