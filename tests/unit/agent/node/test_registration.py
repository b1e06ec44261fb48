"""A Node that is created, or taken over, against an API in memory."""

from __future__ import annotations

import copy

import pytest

from agent.node.model import NodePolicy
from agent.node.work.registration import Registration
from nodelib.errors import Permanent
from nodelib.json_values import Json
from nodelib.kube.client import ApiError
from nodelib.kube.times import format_micro
from tests.fakes.clock import FakeClock
from tests.unit.agent.node.node_status import MACHINE

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
NODE = "/api/v1/nodes/n1"


class Api:
    """`objects` by path; patches are kept as they came."""

    def __init__(self) -> None:
        self.objects, self.patches = dict[str, Json](), list[tuple[str, Json, str]]()

    async def get(self, path: str) -> Json:
        if path not in self.objects:
            raise ApiError(404, "NotFound", "it is not there")
        return copy.deepcopy(self.objects[path])

    async def post(self, path: str, body: Json) -> Json:
        self.objects[f"{path}/{body['metadata']['name']}"] = body
        return body

    async def patch(self, path: str, body: Json, kind: str = "merge") -> Json:
        self.patches.append((path, body, kind))
        return await self.get(path.removesuffix("/status"))


def registration(api: Api) -> Registration:
    return Registration(api, NodePolicy(name="n1", labels={"team": "net"}), MACHINE, FakeClock())


def existing(machine_id: str) -> Json:
    info = {"machineID": machine_id, "systemUUID": machine_id}
    return {"metadata": {"name": "n1", "labels": {}}, "spec": {}, "status": {"nodeInfo": info}}


def lease(age: float) -> Json:
    return {"spec": {"renewTime": format_micro(FakeClock().now() - age), "leaseDurationSeconds": 40}}


async def test_created_with_its_labels_and_status() -> None:
    api = Api()
    await registration(api).create({"phase": "x"})
    made = api.objects[NODE]
    assert made["status"] == {"phase": "x"} and made["metadata"]["labels"]["team"] == "net"


async def test_an_existing_node_gets_its_default_labels_back() -> None:
    api = Api()
    api.objects[NODE] = existing("m")
    await registration(api).take_over()
    ((path, body, kind),) = api.patches
    assert (path, kind) == (f"{NODE}/status", "strategic")
    assert body["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"


async def test_a_node_that_is_right_is_not_patched() -> None:
    api = Api()
    api.objects[NODE] = {**existing("m"), "metadata": registration(api).wanted["metadata"]}
    assert (await registration(api).take_over())["metadata"]["name"] == "n1"
    assert api.patches == []


async def test_a_name_that_another_machine_holds_is_refused() -> None:
    api = Api()
    api.objects |= {NODE: existing("other"), LEASE: lease(age=5)}
    with pytest.raises(Permanent, match="another machine"):
        await registration(api).take_over()
    assert api.patches == []


async def test_a_name_that_another_machine_has_left_is_taken_over() -> None:
    api = Api()
    api.objects |= {NODE: existing("other"), LEASE: lease(age=60)}
    await registration(api).take_over()
    assert len(api.patches) == 1
