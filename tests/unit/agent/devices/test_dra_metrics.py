"""Metrics of claims: what is in use by driver, how long pods' claims took, how long drivers' answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from agent.common.model.errors import PluginError
from agent.devices.edge.dra_driver import DraDriver
from agent.devices.edge.dra_metrics import DraMetrics
from agent.devices.model.dra import ClaimRef, ClaimState
from agent.devices.work.dra import DraManager, DraManagerDeps
from agent.plugins.edge.apis import DRA
from agent.plugins.model import PluginInfo
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.plugin_apis.server import serve
from tests.unit.agent.devices.test_dra_work import World, user

CLAIM = ClaimRef("default", "c1", "uid-c1")


def shown(registry: CollectorRegistry, name: str) -> dict[str, float]:
    """Values of a metric by its labels as the text has them, without what depends on time."""
    lines = generate_latest(registry).decode().splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith(name))
    return {key.removeprefix(name): float(value) for key, _, value in found}


def test_claims_in_use_by_driver() -> None:
    states = [
        ClaimState(CLAIM, ("a", "b"), frozenset("p"), prepared=True),
        ClaimState(ClaimRef("default", "c2", "2"), ("a",), frozenset("p"), prepared=True),
        ClaimState(ClaimRef("default", "c3", "3"), ("c",), frozenset("p")),
    ]
    registry = CollectorRegistry()
    DraMetrics(registry, lambda: states)
    wanted = {'{driver_name="<any>"}': 2, '{driver_name="a"}': 2, '{driver_name="b"}': 1}
    assert shown(registry, "dra_resource_claims_in_use") == wanted
    states.clear()
    assert shown(registry, "dra_resource_claims_in_use") == {'{driver_name="<any>"}': 0}


async def test_operations_of_pods() -> None:
    world, registry = World(), CollectorRegistry()
    metrics = DraMetrics(registry, lambda: world.manager.states)
    deps = DraManagerDeps(
        world.files, world, lambda *what: world, world.clock, lambda: None, lambda: None, timed=metrics.operation
    )
    world.manager = DraManager(deps)
    await world.manager.drivers.register(PluginInfo("DRAPlugin", "drv", "/p/drv.sock", ("v1.DRAPlugin",)))
    world.error = "on fire"
    with pytest.raises(NodewrightError):
        await world.manager.prepare(user("a"))
    world.error = ""
    await world.manager.prepare(user("a"))
    await world.manager.release("a")
    assert shown(registry, "dra_operations_duration_seconds_count") == {
        '{is_error="true",operation_name="PrepareResources"}': 1,
        '{is_error="false",operation_name="PrepareResources"}': 1,
        '{is_error="false",operation_name="UnprepareResources"}': 1,
    }


async def test_calls_of_drivers(tmp_path: Path) -> None:
    async def prepare(request: Json) -> Json:
        return {"claims": {CLAIM.uid: {"devices": []}}}

    registry = CollectorRegistry()
    metrics = DraMetrics(registry, lambda: ())
    path = f"{tmp_path}/dra.sock"
    server = await serve(path, [DRA.handler("DRAPlugin", {"NodePrepareResources": prepare})])
    driver = DraDriver("drv", path, "v1.DRAPlugin", metrics.call)
    try:
        await driver.prepare([CLAIM])
        with pytest.raises(PluginError):
            await driver.unprepare([CLAIM])
    finally:
        await driver.close()
        await server.stop(None)
    service = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
    assert shown(registry, "dra_grpc_operations_duration_seconds_count") == {
        f'{{driver_name="drv",grpc_status_code="OK",method_name="{service}/NodePrepareResources"}}': 1,
        f'{{driver_name="drv",grpc_status_code="Unimplemented",method_name="{service}/NodeUnprepareResources"}}': 1,
    }


def test_names_of_drivers_without_end_are_one() -> None:
    registry = CollectorRegistry()
    metrics = DraMetrics(registry, lambda: ())
    for number in range(300):
        with metrics.call(f"drv-{number}", "/m"):
            pass
    found = shown(registry, "dra_grpc_operations_duration_seconds_count")
    assert len(found) == 101 and max(found.values()) == 200
