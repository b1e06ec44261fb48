"""`trace` and `service` predict what real packets do, and explain why one does not arrive."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from typing import Any

import pytest

from tests.builders.pods import manifest, web
from tests.builders.services import WEB_PORT, service
from tests.cluster.test_service import APP, answers_from, ask, client, servers
from tests.cluster.world import Object, World, holds
from tests.netns.cni_world import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]


async def nodewright(world: World, *arguments: str) -> tuple[int, str]:
    """Exit status and output of a command of ours on the world's cluster."""
    argv = [sys.executable, "-m", "cli", *arguments, "--name", world.cluster.name]
    done = await asyncio.create_subprocess_exec(
        *argv, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(done.communicate(), 180)
    return done.returncode or 0, out.decode()


async def ends(world: World, come: str, to: str, *more: str) -> list[dict[str, Any]]:
    _, text = await nodewright(world, "trace", come, to, "-o", "json", *more)
    found: list[dict[str, Any]] = json.loads(text)
    return found


async def test_the_way_to_a_service_is_the_one_that_packets_take(world: World) -> None:
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT], type="NodePort"))
    await servers(world, "node1", "node2")
    await client(world)
    url = f"http://{made['spec']['clusterIP']}/hostname"
    await answers_from(world, url, {"web-0", "web-1"})
    name = f"{world.namespace}/web"
    found = await ends(world, f"{world.namespace}/client", name)
    answered = {f"pod {world.namespace}/{one}" for one in await ask(world, url, 20)}
    assert {path["name"] for path in found} == answered and all(path["arrived"] for path in found)
    assert {len(path["legs"]) for path in found} == {1, 2}, "one endpoint is on the other node"
    status, text = await nodewright(world, "trace", "outside", name)
    assert status == 0 and "its NodePort" in text and "source becomes this node's address" in text
    _, text = await nodewright(world, "service", name, "--rules")
    assert "web-0 on node1: ready" in text and "web-1 on node2: ready" in text
    counted = re.findall(r"^((?: +\d+)+)  \w.* KUBE-SEP-\w+: .*DNAT", text, re.MULTILINE)
    counters = [int(one) for columns in counted for one in columns.split()]
    assert sum(counters) >= 20 or world.cluster.options.proxy_mode != "iptables"
    assert re.search(rf" -> {re.escape(made['spec']['clusterIP'])}:80 -> \S+ \(pod {name}-\d\), TCP, ", text)


async def test_why_a_packet_does_not_arrive(world: World) -> None:
    own = world.namespace
    await client(world)
    await world.create(service("nobody", selector={"app": "nobody"}, ports=[WEB_PORT]))
    status, text = await nodewright(world, "trace", f"{own}/client", f"{own}/nobody")
    assert status == 1 and "REFUSED" in text and "has the labels app=nobody" in text
    late = manifest(
        "late", web(ready=False, readinessProbe={"exec": {"command": ["/bin/false"]}}), labels={"app": "late"}
    )
    await world.create(service("late", selector={"app": "late"}, ports=[WEB_PORT]))
    await world.create(late)

    async def unready() -> bool:
        status, text = await nodewright(world, "trace", f"{own}/client", f"{own}/late")
        return status == 1 and f"pod {own}/late: is not ready" in text and "none is ready" in text

    await holds(unready, "the pod that is not ready is named")
    local = await world.create(
        service("local", selector=APP, ports=[WEB_PORT], type="NodePort", externalTrafficPolicy="Local")
    )
    await servers(world, "node1")
    port = local["spec"]["ports"][0]["nodePort"]

    async def dropped() -> bool:
        status, text = await nodewright(world, "trace", "outside", f"{world.address('node2')}:{port}")
        return status == 1 and "DROPPED" in text

    await holds(dropped, "policy Local drops on a node without endpoints")
    assert all(path["arrived"] for path in await ends(world, "outside", f"{world.address('node1')}:{port}"))


async def test_routes_decide_too(world: World) -> None:
    """The cluster of the tests has no uplink, and this machine no route to its Services and pods."""
    own = world.namespace
    made = await world.run(manifest("web-0", web(), labels=APP, nodeName="node1"))
    await world.create(service("web", selector=APP, ports=[WEB_PORT]))
    await client(world)
    for come in ("node1", f"{own}/client"):
        status, text = await nodewright(world, "trace", come, "192.0.2.99:53")
        assert status == 1 and text.startswith("UNREACHABLE") and "no route" in text, text
    said = await world.shell("client", "/agnhost connect --timeout 20s 192.0.2.99:53 2>&1 || true")
    assert "network is unreachable" in said, "the kernel says the same"
    for to in (f"{own}/web", f"{made['status']['podIP']}:8080"):
        status, text = await nodewright(world, "trace", "outside", to)
        assert status == 1 and text.startswith("NEVER COMES TO A NODE") and "NodePort" in text, text
    _, text = await nodewright(world, "trace", f"{own}/client", f"{made['status']['podIP']}:8080", "--verbose")
    assert text.startswith("ARRIVES") and "route: by" in text


async def test_source_ranges_and_policies_are_reported(world: World) -> None:
    other = "example.com/balancer"  # ours would give it an address of the pool
    ranges: Object = {"type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.0/24"], "loadBalancerClass": other}
    await world.create(service("balanced", selector=APP, ports=[WEB_PORT], **ranges))
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.77"}]}}}
    await world.api.patch(f"{world.path('services', 'balanced')}/status", status)
    await servers(world, "node1")
    trace = ("trace", "outside", f"{world.namespace}/balanced", "--outside")

    async def ranges_decide() -> bool:
        denied, text = await nodewright(world, *trace, "198.51.100.1")
        allowed, _ = await nodewright(world, *trace, "192.0.2.9")
        return (denied, allowed) == (1, 0) and "none of loadBalancerSourceRanges" in text

    assert await holds(ranges_decide, "the ranges decide")
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "none"},
        "spec": {"podSelector": {"matchLabels": APP}, "policyTypes": ["Ingress"]},
    }
    await world.api.post(f"/apis/networking.k8s.io/v1/namespaces/{world.namespace}/networkpolicies", policy)

    async def policy_decides() -> bool:
        status, text = await nodewright(world, *trace, "192.0.2.9")
        return status == 1 and f"isolated by {world.namespace}/none" in text

    assert await holds(policy_decides, "the policy decides")


async def test_a_live_trace_follows_a_real_connection_and_leaves_nothing(world: World) -> None:
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT]))
    (pod,) = await servers(world, "node2")
    await client(world, "node1")
    url = f"http://{made['spec']['clusterIP']}/hostname"
    await answers_from(world, url, {"web-0"})
    argv = [sys.executable, "-m", "cli", "trace", f"{world.namespace}/client", f"{world.namespace}/web", "--live"]
    following = await asyncio.create_subprocess_exec(
        *argv, "--name", world.cluster.name, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert following.stdout is not None
    assert b"waiting" in await asyncio.wait_for(following.stdout.readline(), 60)
    assert await ask(world, url) == ["web-0"]
    rest = (await asyncio.wait_for(following.stdout.read(), 60)).decode()
    assert await following.wait() == 0
    assert f"Service {world.namespace}/web" in rest and f"pod {world.namespace}/web-0" in rest
    assert "ARRIVES" in rest and "node1: " in rest and "node2: " in rest
    drop = ("-d", pod["status"]["podIP"], "-p", "tcp", "--dport", "8080", "-j", "DROP")
    await world.in_node("node2", "iptables", "-w", "5", "-I", "FORWARD", *drop)
    try:
        blocked = await asyncio.create_subprocess_exec(
            *argv, "--name", world.cluster.name, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert blocked.stdout is not None
        assert b"waiting" in await asyncio.wait_for(blocked.stdout.readline(), 60)
        await ask(world, url)
        rest = (await asyncio.wait_for(blocked.stdout.read(), 60)).decode()
        assert await blocked.wait() == 1 and "DROPPED on node2" in rest and "by ip filter FORWARD" in rest
    finally:
        await world.in_node("node2", "iptables", "-w", "5", "-D", "FORWARD", *drop)
    killed = await asyncio.create_subprocess_exec(
        *argv, "--name", world.cluster.name, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert killed.stdout is not None
    assert b"waiting" in await asyncio.wait_for(killed.stdout.readline(), 60)
    killed.kill()
    await killed.wait()

    async def gone() -> bool:
        return b"nodewright-trace" not in (await world.in_node("node1", "nft", "list", "tables")).stdout

    await holds(gone, "a killed trace leaves no table")


async def test_a_target_port_where_nobody_listens(world: World) -> None:
    """Looked up where the pod listens: neither the API nor the rules know it; the remedy works as it is printed."""
    own = world.namespace
    made = await world.create(service("web", selector=APP, ports=[{"port": 80, "targetPort": 9999}]))
    await servers(world, "node1", "node2")
    await client(world)

    async def refused() -> bool:
        status, text = await nodewright(world, "trace", f"{own}/client", f"web.{own}.svc.cluster.local")
        return status == 1 and text.startswith("REFUSED") and "nobody listens on 9999/tcp, only on 8080/tcp" in text

    await holds(refused, "the closed port is no arrival")
    said = await world.shell("client", f"/agnhost connect --timeout 20s {made['spec']['clusterIP']}:80 2>&1 || true")
    assert "REFUSED" in said, "the kernel says the same"
    status, text = await nodewright(world, "service", f"{own}/web")
    assert status == 0 and "nobody listens on 9999/tcp, only on 8080/tcp: connections to port 80 are refused." in text
    do = re.search(r"do: If 8080 is the right port: `\./nodewright (.*)`\.", text)
    assert do is not None
    argv = [sys.executable, "-m", "cli", *shlex.split(do[1])]
    assert await (await asyncio.create_subprocess_exec(*argv, cwd=ROOT)).wait() == 0

    async def arrives() -> bool:
        return (await nodewright(world, "trace", f"{own}/client", f"{own}/web"))[0] == 0

    await holds(arrives, "the remedy helps")
    assert (await nodewright(world, "trace", f"{own}/client", "node2:10250"))[0] == 0
    assert (await nodewright(world, "trace", f"{own}/client", "node2:2"))[0] == 1
    assert (await nodewright(world, "trace", f"{own}/client", "nobody"))[0] == 2
