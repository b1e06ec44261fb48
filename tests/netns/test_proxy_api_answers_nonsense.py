"""The whole proxy daemon behind a balancer that answers nonsense: its rules stay, and it follows again afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns import api_server
from tests.netns.cni_world import ROOT, wait_for
from tests.netns.proxy_world import ProxyWorld

pytestmark = pytest.mark.netns
PORT = "8099"
FAULTS = [
    "list a page",
    "list nothing",
    "list an empty object",
    "list a list of something else",
    "list objects that were not asked for",
    "list half a list",
    "list pages without an end",
    "list too many requests",
    "list a page 404",
    "watch an event of another kind",
    "watch an event without an object",
    "watch a version that is always too old",
    "watch bytes",
    "stream a cut half-way",
    "stream a bookmark without a version",
    "stream an error half-way: too old",
    "stream objects that were not asked for",
]


class Balanced:
    """A proxy whose API server is behind the balancer; `folder` is where that is told what to do."""

    def __init__(self, world: ProxyWorld, folder: Path) -> None:
        self.world, self.folder = world, folder

    def answers(self, fault: str, times: int = 3) -> None:
        """The balancer has this fault, and the proxy has come upon it several times."""
        (self.folder / "draft").write_text(fault)
        (self.folder / "draft").rename(self.folder / "fault")

        def answered() -> bool:
            name, _, count = (self.folder / "answered").read_text().rpartition("=")
            return name == fault and int(count or 0) >= times

        wait_for(f"the proxy meets {fault!r}", answered, 90)


@pytest.fixture(scope="module")
def balanced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balanced]:
    folder = tmp_path_factory.mktemp("balancer")
    with api_server.running(tmp_path_factory.mktemp("api"), []) as api:
        world = ProxyWorld(tmp_path_factory.mktemp("proxy"), api, "nftables")
        argv = world.node.argv(sys.executable, "-m", "tests.netns.nonsense_balancer", PORT, api.server, str(folder))
        balancer = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE)
        try:
            assert balancer.stdout is not None and balancer.stdout.readline() == b"balancing\n"
            config = json.loads((world.folder / "kubeconfig").read_text())
            config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{PORT}"}
            (world.folder / "kubeconfig").write_text(json.dumps(config))
            world.start_proxy()
            world.service("steady")
            world.endpoints("steady", ["10.244.0.11", "10.244.0.12"])
            world.synced("10.244.0.11:8080", "10.244.0.12:8080")
            yield Balanced(world, folder)
        finally:
            balancer.kill()
            balancer.wait()
            if balancer.stdout is not None:
                balancer.stdout.close()
            world.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_rules_stay(balanced: Balanced, fault: str) -> None:
    world = balanced.world
    whole = world.meaning()
    assert whole
    balanced.answers(fault)
    assert world.meaning() == whole
    balanced.answers("", 0)
    number = FAULTS.index(fault) + 50
    world.endpoints("steady", ["10.244.0.11", "10.244.0.12", f"10.244.0.{number}"])
    world.synced(f"10.244.0.{number}:8080", "10.244.0.11:8080")
    world.endpoints("steady", ["10.244.0.11", "10.244.0.12"])
    wait_for("the endpoint is gone again", lambda: not world.shows(f"10.244.0.{number}:8080"), 60)
    assert world.proxy is not None and world.proxy.poll() is None
