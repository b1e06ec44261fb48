"""The whole daemon with a real API server and real packets: what users rely on, and what must never break."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns import api_server
from tests.netns.cni_world import ROOT, wait_for
from tests.netns.proxy_world import CLIENT, OUTSIDE, ProxyWorld, names

pytestmark = pytest.mark.netns


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[api_server.ApiServer]:
    with api_server.running(tmp_path_factory.mktemp("api"), []) as one:
        yield one


@pytest.fixture(scope="module", params=["iptables", "nftables"])
def world(
    api: api_server.ApiServer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ProxyWorld]:
    one = ProxyWorld(tmp_path_factory.mktemp("proxy"), api, request.param)
    try:
        one.start_proxy()
        yield one
    finally:
        one.close()


FILL = str(Path(__file__).with_name("conntrack_fill.py"))
FLUSH = "; ".join(f"iptables -t {table} -F; iptables -t {table} -X" for table in ("nat", "filter", "mangle"))
DAMAGE = {
    "iptables": [FLUSH, "iptables -t nat -D PREROUTING 1", "iptables -t nat -R KUBE-MARK-MASQ 1 -j MARK --or-mark 0x1"],
    "nftables": [
        "nft delete table ip nodewright-proxy",
        "nft flush chain ip nodewright-proxy nat-prerouting",
        "nft flush map ip nodewright-proxy endpoints",
        "nft insert rule ip nodewright-proxy services accept",
    ],
}


def test_tcp_through_every_door(world: ProxyWorld) -> None:
    one, two = world.pod(11, ("tcp", 8080)), world.pod(12, ("tcp", 8080))
    created = world.service("web", type="NodePort", externalIPs=["198.51.100.5"])
    ip, node_port = created["spec"]["clusterIP"], created["spec"]["ports"][0]["nodePort"]
    world.endpoints("web", ["10.244.0.11", "10.244.0.12"])
    world.synced("10.244.0.11:8080", "10.244.0.12:8080")
    assert names(world.ask(one, "tcp", ip, 80, 40)) == {"pod11", "pod12"}
    assert set(world.ask(two, "tcp", ip, 80, 20)) >= {"pod11 10.244.0.12"}, "pods keep their address towards pods"
    assert names(world.ask(world.node, "tcp", ip, 80, 40)) == {"pod11", "pod12"}
    assert names(world.ask(world.client, "tcp", OUTSIDE, node_port, 40)) == {"pod11", "pod12"}
    if world.mode == "iptables":
        assert names(world.ask(world.node, "tcp", "127.0.0.1", node_port, 40)) == {"pod11", "pod12"}
    assert names(world.ask(world.client, "tcp", "198.51.100.5", 80, 20)) <= {"pod11", "pod12"}
    assert world.ask(world.client, "tcp", OUTSIDE, node_port)[0].split()[1] == "10.244.0.1", "masqueraded"
    world.endpoints("web", ["10.244.0.11"])
    wait_for("one endpoint left", lambda: not world.shows("10.244.0.12:8080"))
    assert world.ask(one, "tcp", ip, 80, 5) == ["pod11 10.244.0.1"] * 5, "hairpin: a pod reaches itself by its Service"
    world.endpoints("web", [])
    wait_for("no endpoints", lambda: world.refuses("web:main", ip))
    assert world.ask(one, "tcp", ip, 80) == world.ask(world.node, "tcp", ip, 80) == ["ConnectionRefusedError"]
    assert world.ask(world.client, "tcp", OUTSIDE, node_port) == ["ConnectionRefusedError"]
    world.call("DELETE", "/api/v1/namespaces/default/services/web")
    wait_for("the Service is gone", lambda: not world.refuses("web:main", ip))


def test_session_affinity(world: ProxyWorld) -> None:
    pods = [world.pod(number, ("tcp", 8080)) for number in (21, 22, 23)]
    created = world.service("sticky", sessionAffinity="ClientIP")
    world.endpoints("sticky", [f"10.244.0.{number}" for number in (21, 22, 23)])
    world.synced("10.244.0.21:8080", "10.244.0.23:8080")
    for pod in pods:
        assert len(set(world.ask(pod, "tcp", created["spec"]["clusterIP"], 80, 15))) == 1


def test_source_address_with_local_policy(world: ProxyWorld) -> None:
    world.pod(31, ("tcp", 8080))
    created = world.service("local", type="NodePort", externalTrafficPolicy="Local")
    world.endpoints("local", ["10.244.0.31"])
    world.synced("10.244.0.31:8080")
    assert world.ask(world.client, "tcp", OUTSIDE, created["spec"]["ports"][0]["nodePort"]) == [f"pod31 {CLIENT}"]


def test_udp_and_its_stale_flows(world: ProxyWorld) -> None:
    client = world.pod(40)
    world.pod(41, ("udp", 5353)), world.pod(42, ("udp", 5353))
    created = world.service("dns", 53, 5353, protocol="UDP", type="NodePort")
    ip, node_port = created["spec"]["clusterIP"], created["spec"]["ports"][0]["nodePort"]
    world.endpoints("dns", ["10.244.0.41"], 5353, "UDP")
    world.synced("10.244.0.41:5353")
    assert world.ask(client, "udp", ip, 53, 1, 5000) == ["pod41 10.244.0.40"]
    assert names(world.ask(world.client, "udp", OUTSIDE, node_port, 1, 5001)) == {"pod41"}
    world.endpoints("dns", ["10.244.0.42"], 5353, "UDP")
    # The same client ports: without an end to the old flows they would go to the old pod for ever.
    wait_for("the old flow ended", lambda: world.ask(client, "udp", ip, 53, 1, 5000) == ["pod42 10.244.0.40"])
    assert names(world.ask(world.client, "udp", OUTSIDE, node_port, 1, 5001)) == {"pod42"}
    assert 'conntrack_reconciler_deleted_entries_total{ip_family="IPv4"}' in world.fetch(
        "http://127.0.0.1:10249/metrics"
    )


def test_killed_and_started_again_under_load(world: ProxyWorld) -> None:
    client = world.pod(50)
    world.pod(51, ("tcp", 8080)), world.pod(52, ("tcp", 8080))
    created = world.service("load", type="NodePort")
    ip, node_port = created["spec"]["clusterIP"], created["spec"]["ports"][0]["nodePort"]
    world.endpoints("load", ["10.244.0.51", "10.244.0.52"])
    world.synced("10.244.0.51:8080", "10.244.0.52:8080")
    talks = [
        world.talk(client, "stream", ip, 80),
        world.talk(client, "knock", ip, 80),
        world.talk(world.client, "stream", OUTSIDE, node_port),
        world.talk(world.client, "knock", OUTSIDE, node_port),
        world.talk(world.node, "knock", ip, 80),
    ]
    for _ in range(int(os.environ.get("NODEWRIGHT_SOAK", "3"))):
        world.kill_proxy()
        before = world.log.count("synced")
        world.start_proxy()

        def synced(before: int = before) -> bool:
            return world.log.count("synced") >= before + 2

        wait_for("both families are synced again", synced)
    assert [world.result(talk).split()[0] for talk in talks] == ["ok"] * len(talks)


def test_changes_while_it_was_dead_are_made_good(world: ProxyWorld) -> None:
    world.service("born")
    world.endpoints("born", ["10.244.0.99"])
    world.synced("10.244.0.99:8080")
    world.kill_proxy()
    world.call("DELETE", "/api/v1/namespaces/default/services/born")
    created = world.service("late")
    world.endpoints("late", ["10.244.0.98"])
    assert world.shows("10.244.0.99:8080")
    world.start_proxy()
    world.synced(created["spec"]["clusterIP"], "10.244.0.98:8080")
    wait_for("chains of the dead Service are gone", lambda: not world.shows("10.244.0.99:8080"))


def test_a_foreign_flush_is_mended(world: ProxyWorld) -> None:
    world.service("flushed")
    world.endpoints("flushed", ["10.244.0.97"])
    world.synced("10.244.0.97:8080")
    whole = world.meaning()
    for damage in DAMAGE[world.mode]:
        world.node.run("sh", "-c", damage)
        assert world.meaning() != whole
        wait_for(f"the rules are back after {damage}", lambda: world.meaning() == whole, 10)
    assert "somebody else changed our rules" in world.log


@pytest.mark.soak
def test_a_full_conntrack_table_is_said_and_stops_nothing_else(world: ProxyWorld) -> None:
    """By hand: 84 MB of the kernel's memory. The limit is the machine's, the table each namespace's own."""
    server = world.pod(61, ("tcp", 8080))
    created = world.service("busy")
    world.endpoints("busy", ["10.244.0.61"])
    world.synced("10.244.0.61:8080")
    ip, whole = created["spec"]["clusterIP"], world.meaning()
    talk = world.talk(world.client, "stream", "10.244.0.61", 8080)
    limit = int(Path("/proc/sys/net/netfilter/nf_conntrack_max").read_text())
    try:
        world.node.run(sys.executable, "-IS", FILL, str(limit))
        wait_for("it is said", lambda: " entries: full. New connections are dropped" in world.log)
        assert world.ask(server, "tcp", ip, 80) == ["TimeoutError"]
        world.node.run("sh", "-c", DAMAGE[world.mode][0])
        wait_for("the rules are back all the same", lambda: world.meaning() == whole, 10)
    finally:
        world.node.run(sys.executable, "-IS", FILL, "flush")
    wait_for("it is over", lambda: " entries: there is room again" in world.log)
    wait_for("new connections", lambda: world.ask(server, "tcp", ip, 80) == ["pod61 10.244.0.1"])
    assert world.result(talk).startswith("ok")


def test_health_and_metrics(world: ProxyWorld) -> None:
    wait_for("healthy", lambda: json.loads(world.fetch("http://127.0.0.1:10256/healthz") or "{}").get("healthy"))
    body = json.loads(world.fetch("http://127.0.0.1:10256/healthz"))
    assert body["nodeEligible"] is True and set(body["status"]) >= {"IPv4"}
    assert world.fetch("http://127.0.0.1:10249/proxyMode") == world.mode
    metrics = world.fetch("http://127.0.0.1:10249/metrics")
    for name in ("sync_proxy_rules_duration_seconds_bucket", "network_programming_duration"):
        assert f"kubeproxy_{name}" in metrics
    if world.mode == "iptables":
        assert "kubeproxy_sync_proxy_rules_iptables_total" in metrics
        assert "ct_state_invalid_dropped_pkts" in world.rules("filter")


def test_health_check_node_port(world: ProxyWorld) -> None:
    created = world.service("balanced", type="LoadBalancer", externalTrafficPolicy="Local")
    port = created["spec"]["healthCheckNodePort"]
    world.endpoints("balanced", ["10.244.0.60"])
    url = f"http://127.0.0.1:{port}/"
    wait_for("one local endpoint", lambda: '"localEndpoints":1' in world.fetch(url))
    assert '"serviceProxyHealthy":true' in world.fetch(url)
    world.endpoints("balanced", [])
    wait_for("none", lambda: '"localEndpoints":0' in world.fetch(url))
    world.call("DELETE", "/api/v1/namespaces/default/services/balanced")
    wait_for("the port is closed", lambda: world.is_refused(url))


def test_cleanup_takes_all_of_it(world: ProxyWorld) -> None:
    assert world.proxy is not None
    world.proxy.terminate()
    assert world.proxy.wait(30) == 0
    assert "10.244.0.97" in world.rules(), "the rules outlive the proxy"
    done = subprocess.run(world.node.argv(sys.executable, "-m", "proxy", "--cleanup"), cwd=ROOT, check=False)
    assert done.returncode == 0
    saved = world.node.run("sh", "-c", "iptables-save; nft list tables").stdout
    left = [line for line in saved.splitlines() if "KUBE-" in line or "nodewright-proxy" in line]
    assert all("KUBE-FIREWALL" in line for line in left)


def test_no_api_server_is_said_and_nothing_is_written(api: api_server.ApiServer, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    argv = ["unshare", "--net", sys.executable, "-m", "proxy", f"--kubeconfig={config}", "--hostname-override=x"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=ROOT, stderr=log)
    try:
        wait_for("it says so", lambda: "API server https://127.0.0.1:1" in (tmp_path / "log").read_text())
        assert "synced" not in (tmp_path / "log").read_text()
    finally:
        process.terminate()
        assert process.wait(30) == 0
