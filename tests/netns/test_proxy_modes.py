"""One proxy mode takes over from another under real traffic. It has its own file because it needs its own node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns import api_server
from tests.netns.cni_world import Namespace, wait_for
from tests.netns.proxy_world import OUTSIDE, ProxyWorld, names

pytestmark = pytest.mark.netns


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ProxyWorld]:
    (tmp_path / "api").mkdir()
    with api_server.running(tmp_path / "api", []) as api:
        made = ProxyWorld(tmp_path, api)
        try:
            yield made
        finally:
            made.close()


def test_switching_modes_breaks_no_flow_and_leaves_nothing(world: ProxyWorld) -> None:
    client = world.pod(70)
    for number in (71, 72):
        world.pod(number, ("tcp", 8080), ("udp", 5353))
    created = world.service("moving", type="NodePort")
    ip, node_port = created["spec"]["clusterIP"], created["spec"]["ports"][0]["nodePort"]
    world.endpoints("moving", ["10.244.0.71", "10.244.0.72"])
    dns = world.service("moving-dns", 53, 5353, protocol="UDP")["spec"]["clusterIP"]
    world.endpoints("moving-dns", ["10.244.0.71", "10.244.0.72"], 5353, "UDP")
    sticky = world.service("moving-sticky", sessionAffinity="ClientIP")["spec"]["clusterIP"]
    world.endpoints("moving-sticky", ["10.244.0.71", "10.244.0.72"])
    talk = None
    for mode in ("iptables", "nftables", "userspace"):
        if world.proxy is not None:
            world.kill_proxy()
        world.mode = mode
        world.start_proxy()
        wait_for(f"only {mode} has rules\n{world.log[-2000:]}", lambda: world.modes() == [world.mode])
        assert names(world.ask(client, "tcp", ip, 80, 20)) == {"pod71", "pod72"}, mode
        assert names(world.ask(world.node, "tcp", ip, 80, 20)) == {"pod71", "pod72"}, mode
        assert names(world.ask(world.client, "tcp", OUTSIDE, node_port, 20)) == {"pod71", "pod72"}, mode
        assert len(names(world.ask(client, "tcp", sticky, 80, 10))) == 1, mode
        for who in (client, world.node):

            def answered(who: Namespace = who) -> bool:
                return names(world.ask(who, "udp", dns, 53, 1, 6000)) <= {"pod71", "pod72"}

            wait_for("UDP", answered)
        if talk is None:
            talk = world.talk(client, "stream", ip, 80)
    assert talk is not None and world.result(talk).startswith("ok")
