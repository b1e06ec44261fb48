"""What the plugins' parts tell the others."""

from __future__ import annotations

from pathlib import Path

from agent.build.managers import build_managers
from agent.build.plugins import build_devices, build_plugins
from agent.managers.work import TopologyAffinity
from nodelib.tasks import Supervisor
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock
from tests.unit.agent.build.test_connections import base
from tests.waiting import until

DRIVER = "/apis/storage.k8s.io/v1/csidrivers/drv"


async def test_a_csi_driver_that_changes_has_the_node_report_its_volumes_again(tmp_path: Path) -> None:
    """attachRequired decides which volumes are in volumesInUse, and a controller waits for what is said there."""
    async with FakeApiServer() as api, Supervisor("x") as supervisor:
        made, affinity = base(tmp_path, api, FakeClock(), ""), TopologyAffinity()
        devices = await build_devices(made, affinity)
        plugins = await build_plugins(made, devices, await build_managers(made, devices, affinity))
        reports = list[bool]()
        made.node_changed.follow(lambda: reports.append(plugins.objects.attaches("drv")))
        for name, work in plugins.objects.tasks():
            supervisor.spawn(name, work)
        await plugins.objects.driver("drv")
        await api.put(DRIVER, {"metadata": {"name": "drv"}, "spec": {"attachRequired": False}})
        await until(lambda: reports)
        assert reports == [False]
        await plugins.close()
        await made.connections.close()
