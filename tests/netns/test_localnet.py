"""CVE-2020-8558: with route_localnet, 127.0.0.1 of a node is reached from its network, unless a rule is there first."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns.cni_world import LIMIT, ROOT, wait_for
from tests.netns.loopback_world import LoopbackWorld

pytestmark = pytest.mark.netns

_AWAY = "https://127.0.0.1:1"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LoopbackWorld]:
    one = LoopbackWorld(tmp_path)
    try:
        yield one
    finally:
        one.close()


def proxy(world: LoopbackWorld, *flags: str) -> list[str]:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": _AWAY}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (world.folder / "kubeconfig").write_text(json.dumps(config))
    own = (f"--kubeconfig={world.folder / 'kubeconfig'}", "--hostname-override=x", "--conntrack-max-per-core=0")
    return world.node.argv(sys.executable, "-m", "proxy", *own, *flags)


def test_the_world_shows_the_hole(world: LoopbackWorld) -> None:
    assert not world.loopback_is_reached()
    world.node.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet")
    assert world.loopback_is_reached()


@pytest.mark.parametrize("mode", ["iptables", "nftables", "userspace"])
def test_localnet_before_sync(world: LoopbackWorld, mode: str) -> None:
    """While the API server is away there are no rules yet, and nothing may be open that they would guard."""
    with (world.folder / "log").open("wb") as log:
        process = subprocess.Popen(proxy(world, f"--proxy-mode={mode}"), cwd=ROOT, stderr=log)
    try:
        said = world.folder / "log"
        wait_for("it misses the API server", lambda: process.poll() is not None or _AWAY in said.read_text())
        assert process.poll() is None, said.read_text()
        assert world.route_localnet == "0"
        assert not world.loopback_is_reached()
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_localnet_of_an_init_container_is_guarded(world: LoopbackWorld) -> None:
    """--init-only sets what needs root, for a proxy that starts later: the guard must be there by then."""
    done = subprocess.run(proxy(world, "--init-only"), cwd=ROOT, check=False, capture_output=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert world.route_localnet == "1"
    assert "KUBE-FIREWALL" in world.node.run("iptables-save", "-t", "filter").stdout
    assert not world.loopback_is_reached()


_KEEP = """
import asyncio, sys
from agent.node.edge.iptables import find_tables
from agent.node.work.util_chains import UtilChains
from nodelib.clock import SystemClock
asyncio.run(UtilChains(find_tables, SystemClock()).run())
"""


def test_the_kubelets_chain_guards_a_node_whose_proxy_is_another(world: LoopbackWorld) -> None:
    """Upstream's proxy sets route_localnet when it starts and relies on the kubelet's KUBE-FIREWALL."""
    kept = world.node.start(sys.executable, "-c", _KEEP, cwd=ROOT)
    wait_for("the chains", lambda: _guarded(world))
    world.node.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet")
    assert not world.loopback_is_reached()
    for table in ("filter", "nat", "mangle"):
        world.node.run("sh", "-c", f"iptables -t {table} -F && iptables -t {table} -X")
    wait_for("the chains after a flush", lambda: _guarded(world))
    assert not world.loopback_is_reached()
    saved = world.node.run("sh", "-c", "iptables-save; ip6tables-save").stdout
    assert saved.count(":KUBE-IPTABLES-HINT ") == 2
    assert saved.count(":KUBE-KUBELET-CANARY ") == 6
    assert saved.count(":KUBE-FIREWALL ") == 1, "IPv6 needs none"
    assert kept.poll() is None


_COUNTED = """
import asyncio
from agent.node.edge.iptables import find_tables
from agent.node.work import util_chains
from nodelib.clock import SystemClock
from nodelib.firewall.iptables import Iptables
read, look, util_chains.CHECK = Iptables.chain_exists, util_chains.UtilChains._look, 0.2
async def counted_read(*given):
    print("read", flush=True)
    return await read(*given)
async def counted_look(*given):
    print("looking", flush=True)
    found = await look(*given)
    print("looked", flush=True)
    return found
Iptables.chain_exists, util_chains.UtilChains._look = counted_read, counted_look
asyncio.run(util_chains.UtilChains(find_tables, SystemClock()).run())
"""


def test_rules_of_others_are_no_reason_to_start_the_tools(world: LoopbackWorld) -> None:
    """A proxy changes its rules all the time: that the kubelet's chains are as they were is seen over netlink."""
    said = world.folder / "said"
    with said.open("wb") as log:
        kept = world.node.start(sys.executable, "-c", _COUNTED, cwd=ROOT, stdout=log)
    wait_for("the chains", lambda: _guarded(world))
    changes = itertools.count()

    def reads_after_a_change() -> int:
        before = len(said.read_text())
        world.node.run("iptables", "-t", "filter", "-N", f"OTHER-{next(changes)}")
        # A look that began before the change may still go on.
        wait_for("a look", lambda: "looked" in said.read_text()[before:].partition("looking")[2])
        return said.read_text()[before:].partition("looking")[2].count("read")

    # The first looks read, until one has found that nothing was missing.
    wait_for("a look that reads nothing", lambda: reads_after_a_change() == 0)
    assert [reads_after_a_change() for _ in range(5)] == [0] * 5
    for spoilt in ("-D INPUT -j KUBE-FIREWALL", "-t mangle -X KUBE-IPTABLES-HINT"):
        world.node.run("iptables", *spoilt.split())
        wait_for("what was removed", lambda: _guarded(world) and "KUBE-IPTABLES-HINT" in _mangle(world))
    assert kept.poll() is None


def _mangle(world: LoopbackWorld) -> str:
    return world.node.run("iptables-save", "-t", "mangle").stdout


def _guarded(world: LoopbackWorld) -> bool:
    rules = world.node.run("iptables-save", "-t", "filter").stdout
    return all(f"-A {chain} -j KUBE-FIREWALL" in rules for chain in ("INPUT", "OUTPUT")) and "-j DROP" in rules
