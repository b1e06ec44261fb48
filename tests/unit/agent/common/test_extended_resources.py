"""Extended resources that stand for the devices of a ResourceClaim: prepared, granted, and counted only there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.admission.plan.admit import NodeView, shortages
from agent.common.model.pods import Pod
from agent.common.plan import extended_resources as plan
from agent.devices.model.dra import ClaimRef
from agent.devices.plan import dra
from agent.devices.plan.devices import device_requests
from nodelib.errors import Temporary
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.unit.agent.devices.test_dra_work import World

_GPU = "example.com/gpu"
_TWO = {"requests": {_GPU: "2"}, "limits": {_GPU: "2"}}
_STATUS = {
    "extendedResourceClaimStatus": {
        "resourceClaimName": "c1",
        "requestMappings": [
            {"containerName": "main", "resourceName": _GPU, "requestName": "r"},
            {"containerName": "first", "resourceName": _GPU, "requestName": "other"},
        ],
    }
}


def subject(status: Json | None = None, resources: Json | None = None) -> Pod:
    """Its UID is one for which the world's claims are reserved."""
    main = container("main", resources=_TWO if resources is None else resources)
    first = container("first", resources=_TWO)
    return pod(main, initContainers=[first], meta={"uid": "a"}, status=_STATUS if status is None else status)


class _World(World):
    """The driver gives a claim a device for each of two requests."""

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        self.calls.append("prepare")
        device = {"pool_name": "p", "share_id": ""}
        return {
            one.uid: {
                "devices": [
                    {**device, "device_name": name, "request_names": [name], "cdi_device_ids": [f"v/c={name}"]}
                    for name in ("r", "other", "spare")
                ]
            }
            for one in claims
        }


async def test_the_claim_is_prepared_and_each_container_gets_its_requests() -> None:
    world = _World()
    await world.start()
    who = subject()
    await world.manager.prepare(who)
    (main,), (first,) = who.spec["containers"], who.spec["initContainers"]
    assert world.calls == ["prepare"]
    assert world.manager.grant(who, main).cdi_devices == ("v/c=r",)
    assert world.manager.grant(who, first).cdi_devices == ("v/c=other",)
    assert world.manager.grant(who, container("sidekick", resources=_TWO)).cdi_devices == ()
    (shown,) = dra.dynamic_resources(who, main, dra.claims_of(who, world.manager.states))
    assert (shown["claim_name"], [one["device_name"] for one in shown["claim_resources"]]) == ("c1", ["r"])
    await world.manager.release("a")
    assert world.calls == ["prepare", "unprepare"] and not list(world.manager.states)


async def test_a_claim_that_is_reserved_for_others_is_not_prepared() -> None:
    world = _World()
    await world.start()
    who = Pod({**subject().raw, "metadata": {**subject().meta, "uid": "stranger"}})
    with pytest.raises(Temporary, match="not allowed to use"):
        await world.manager.prepare(who)
    assert world.calls == []


def test_a_container_that_asks_for_none_gets_none() -> None:
    who = subject(resources={"requests": {_GPU: "0"}})
    assert plan.requests_of(who, who.spec["containers"][0]) == frozenset()


def test_a_device_plugin_of_the_same_name_is_left_alone() -> None:
    assert device_requests(subject(), [_GPU]) == []
    (left,) = device_requests(subject(status={"phase": "Pending"}, resources={}), [_GPU])
    assert (left.key.container, left.count) == ("first", 2)


def test_the_node_needs_no_room_for_what_the_claim_gives() -> None:
    node = NodeView(name="n", allocatable={"cpu": "1", _GPU: "1"})
    assert set(shortages(subject(status={"phase": "Pending"}), [], node)) == {_GPU}
    assert shortages(subject(), [], node) == {}


@pytest.mark.parametrize("value", [None, {}, "x", {"requestMappings": None}])
def test_other_pods_have_no_such_claim(value: object) -> None:
    who = subject(status={"extendedResourceClaimStatus": value})
    assert plan.claim_name(who) == "" and not plan.mappings(who) and plan.without_claimed(who) is who
