"""DRA drivers that serve v1 of the API, only v1beta1 (those of Kubernetes 1.32 and 1.33), or neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.devices.edge.dra_driver import DraDriver
from agent.devices.model.dra import ClaimRef
from agent.devices.plan import dra as plan
from agent.plugins.edge.apis import DRA, DRA_BETA
from agent.plugins.model import PluginInfo
from nodelib.errors import Invalid
from nodelib.json_values import Json
from nodelib.plugin_apis.server import serve
from tests.waiting import until

BETA, NEW = "v1beta1.DRAPlugin", "v1.DRAPlugin"
REF = ClaimRef("shop", "c1", "claim-uid")
DEVICE: Json = {"request_names": ["one"], "pool_name": "pool", "device_name": "dev-0", "cdi_device_ids": ["v/c=1"]}


def info(*versions: str) -> PluginInfo:
    return PluginInfo("DRAPlugin", "drv", "/p/drv.sock", versions)


@pytest.mark.parametrize("service", [NEW, BETA])
async def test_a_driver_is_called_by_what_it_serves(tmp_path: Path, service: str) -> None:
    asked: list[str] = []

    async def prepare(request: Json) -> Json:
        asked.append(f"prepare {request['claims'][0]['name']}")
        return {"claims": {REF.uid: {"devices": [DEVICE]}}}

    async def unprepare(request: Json) -> Json:
        asked.append(f"unprepare {request['claims'][0]['name']}")
        return {"claims": {REF.uid: {}}}

    methods = {"NodePrepareResources": prepare, "NodeUnprepareResources": unprepare}
    api = DRA if service == NEW else DRA_BETA
    server = await serve(f"{tmp_path}/dra.sock", [api.handler("DRAPlugin", methods)])
    driver = DraDriver("drv", f"{tmp_path}/dra.sock", service)
    try:
        (device,) = plan.prepared_devices("drv", (await driver.prepare([REF]))[REF.uid])
        assert (device.pool, device.device, device.cdi_devices, device.share_id) == ("pool", "dev-0", ("v/c=1",), "")
        assert not (await driver.unprepare([REF]))[REF.uid]["error"]
    finally:
        await driver.close()
        await server.stop(None)
    assert asked == ["prepare c1", "unprepare c1"]


def test_the_newest_service_is_chosen() -> None:
    assert plan.service_of(info(BETA, NEW, "v1.DRAResourceHealth")) == NEW
    assert plan.service_of(info(BETA)) == BETA


@pytest.mark.parametrize("versions", [(), ("v1alpha4.Node",), ("1.0.0", "v1.DRAResourceHealth")])
def test_a_driver_that_serves_neither_is_refused(versions: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match=r"DRA driver drv.*none of.*v1beta1\.DRAPlugin \(Kubernetes 1\.32 and newer\)"):
        plan.service_of(info(*versions))


async def test_a_driver_is_connected_while_its_service_runs_without_any_call(tmp_path: Path) -> None:
    path = f"{tmp_path}/dra.sock"
    driver = DraDriver("drv", path, NEW)
    try:
        assert not driver.is_connected()
        for _ in range(2):
            server = await serve(path, [DRA.handler("DRAPlugin", {})])
            await until(driver.is_connected)
            await server.stop(None)
            await until(lambda: not driver.is_connected())
    finally:
        await driver.close()
    assert not driver.is_connected()
