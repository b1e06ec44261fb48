"""Services as clients use them: from a pod, from a node, from outside, and without endpoints."""

from __future__ import annotations

import asyncio
import collections
import os
import time

import pytest

from tests.builders.pods import AGNHOST, manifest, sleeper, web
from tests.builders.services import WEB_PORT, service
from tests.cluster.world import Object, World, datagram, holds, load

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

UDP = {"port": 90, "targetPort": 8081, "protocol": "UDP"}
APP = {"app": "web"}
_CURL_REFUSED = 7  # exit status; a time-out is 28


async def servers(world: World, *nodes: str) -> list[Object]:
    """One web server on each of the nodes, web-0, web-1 …, all Ready."""
    made = [manifest(f"web-{i}", web(), labels=APP, nodeName=node) for i, node in enumerate(nodes)]
    return await asyncio.gather(*(world.run(obj) for obj in made))


async def client(world: World, node: str = "node1") -> Object:
    """A pod with curl and nc; not the busybox one: a static glibc looks up no names."""
    return await world.run(manifest("client", sleeper(image=AGNHOST), nodeName=node))


async def ask(world: World, url: str, times: int = 1, name: str = "client") -> list[str]:
    """What a pod gets from a URL, each time over a new connection; "" for no answer."""
    script = f"for i in $(seq {times}); do curl -s -m 5 {url} || true; echo; done"
    return (await world.shell(name, script)).splitlines()


async def answers_from(world: World, url: str, wanted: set[str]) -> None:
    """Until the URL leads to these pods and to no others."""

    async def right() -> bool:
        return set(await ask(world, url, 12)) == wanted

    await holds(right, f"{url} leads to {wanted}")


async def test_a_cluster_ip_spreads_and_follows_its_endpoints(world: World) -> None:
    """Both pods answer; a pod that is not Ready or is deleted does not; a new one does."""
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT]))
    await servers(world, "node1", "node2")
    await client(world)
    url = f"http://{made['spec']['clusterIP']}/hostname"
    await answers_from(world, url, {"web-0", "web-1"})
    counted = collections.Counter(await ask(world, url, 60))
    assert min(counted["web-0"], counted["web-1"]) > 10
    await world.delete("web-0")
    await answers_from(world, url, {"web-1"})
    await world.run(manifest("web-2", web(), labels=APP, nodeName="node1"))
    await answers_from(world, url, {"web-1", "web-2"})


async def test_a_pod_that_ends_loses_no_request(world: World) -> None:
    """It leaves the Service before it ends: no request is sent to a dead address."""
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT]))
    goes = web(lifecycle={"preStop": {"sleep": {"seconds": 4}}})
    await world.run(manifest("goes", goes, labels=APP, nodeName="node2", terminationGracePeriodSeconds=20))
    await servers(world, "node1")
    await client(world)
    url = f"http://{made['spec']['clusterIP']}/hostname"
    await answers_from(world, url, {"goes", "web-0"})
    with load([url], net=world.cluster.namespace("node1", "net")) as asked:
        await world.delete("goes")
        await world.gone("goes")
        result = asked.stop()
    assert result["failed"] == []
    assert result["by"]["web-0"] > 0


async def test_what_changes_while_the_proxy_is_dead_is_caught_up(world: World) -> None:
    """Killed at the moment of a change: its rules stay, and the restarted proxy corrects them."""
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT]))
    await servers(world, "node1", "node2")
    await client(world)
    url = f"http://{made['spec']['clusterIP']}/hostname"
    await answers_from(world, url, {"web-0", "web-1"})
    await asyncio.gather(world.delete("web-0"), world.kill("node1", "proxy"))
    await world.run(manifest("web-2", web(), labels=APP, nodeName="node2"))
    await world.kill("node1", "proxy")
    await answers_from(world, url, {"web-1", "web-2"})
    assert set(await ask(world, url, 30)) == {"web-1", "web-2"}, "and never the pod that is gone"


async def test_no_endpoints_means_refused_at_once(world: World) -> None:
    ports = [{"name": "tcp", "port": 80}, {"name": "udp", "port": 81, "protocol": "UDP"}]
    made = await world.create(service("empty", selector={"app": "nobody"}, ports=ports, type="NodePort"))
    await client(world)
    address = made["spec"]["clusterIP"]
    node_port = made["spec"]["ports"][0]["nodePort"]

    async def is_refused(target: str) -> bool:
        return await world.shell("client", f"curl -s -m 20 http://{target}/ ; echo $?") == f"{_CURL_REFUSED}\n"

    await holds(lambda: is_refused(f"{address}:80"), "a connection to the ClusterIP is refused")
    began = time.monotonic()
    assert await is_refused(f"{address}:80")
    assert time.monotonic() - began < 10  # an exec and a refusal, not a time-out
    await holds(lambda: is_refused(f"{world.address('node2')}:{node_port}"), "one to the NodePort too")
    # curl says the same of an unreachable network, and a client that is refused need not wait.
    said = await world.shell("client", f"/agnhost connect --timeout 20s {address}:80 2>&1 || true")
    assert "REFUSED" in said
    from_node = await world.in_node("node1", "curl", "-s", "-m", "20", f"http://{address}:80/", check=False)
    assert from_node.returncode == _CURL_REFUSED


async def test_a_node_port_on_every_node(world: World) -> None:
    """From outside of the cluster, on a node that has a pod and on one that has none."""
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT], type="NodePort"))
    await servers(world, "node2")
    port = made["spec"]["ports"][0]["nodePort"]
    await client(world)
    for node in world.cluster.nodes:
        await answers_from(world, f"http://{node.address}:{port}/hostname", {"web-0"})
    urls = [f"http://{node.address}:{port}/hostname" for node in world.cluster.nodes]
    with load(urls) as asked:
        await asyncio.sleep(2)
        result = asked.stop()
    assert result["failed"] == []
    assert set(result["by"]) == {"web-0"}


async def test_external_traffic_policy_local(world: World) -> None:
    """Only the node with a pod answers from outside, and the pod sees the client's own address."""
    made = await world.create(
        service("web", selector=APP, ports=[WEB_PORT], type="NodePort", externalTrafficPolicy="Local")
    )
    await servers(world, "node2")
    port = made["spec"]["ports"][0]["nodePort"]
    there, elsewhere = (f"http://{world.address(node)}:{port}/clientip" for node in ("node2", "node1"))

    async def right() -> bool:
        with load([there]) as asked:
            await asyncio.sleep(0.5)
            result = asked.stop()
        sources = {answer.rpartition(":")[0] for answer in result["by"]}
        return not result["failed"] and sources == {world.cluster.host_address}

    await holds(right, "the pod sees this machine's address")
    with load([elsewhere]) as asked:
        await asyncio.sleep(0.5)
        assert asked.stop()["by"] == {}


async def test_session_affinity(world: World) -> None:
    """One client, one pod; a client elsewhere may have another."""
    affinity: Object = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT], **affinity))
    await servers(world, "node1", "node1", "node2")
    await client(world)
    url = f"http://{made['spec']['clusterIP']}/hostname"

    async def one_answer() -> bool:
        return len(set(await ask(world, url, 10)) - {""}) == 1

    await holds(one_answer, "all go to one pod")
    first = set(await ask(world, url, 20))
    assert len(first) == 1
    assert set(await ask(world, url, 20)) == first
    await world.delete(first.pop())

    async def another() -> bool:
        found = set(await ask(world, url, 10))
        return len(found) == 1 and "" not in found

    await holds(another, "all go to another pod when theirs is gone")


async def test_udp(world: World) -> None:
    made = await world.create(service("web", selector=APP, ports=[UDP]))
    await servers(world, "node1", "node2")
    await client(world)
    script = f"for i in $(seq 20); do echo hostname | nc -u -w 1 {made['spec']['clusterIP']} 90 & done; wait"

    async def both() -> bool:
        said = await world.shell("client", script)
        return "web-0" in said and "web-1" in said

    assert await holds(both, "datagrams reach both pods")


async def test_a_udp_flow_leaves_a_dead_endpoint(world: World) -> None:
    """A socket that keeps sending is not stuck to a deleted pod: its conntrack entry is deleted."""
    made = await world.create(service("web", selector=APP, ports=[UDP]))
    await servers(world, "node1")
    await client(world, "node2")
    net, address = await world.pod_net(await world.get("client")), made["spec"]["clusterIP"]

    async def answered_by(name: str) -> bool:
        return await datagram(net, address, 90, "hostname", source=5999) == name

    await holds(lambda: answered_by("web-0"), "the first pod answers")
    await world.delete("web-0")
    await world.run(manifest("other", web(), labels=APP, nodeName="node1"))
    assert await holds(lambda: answered_by("other"), "the other pod answers the same socket", 60)


async def test_a_pod_reaches_itself_through_its_service(world: World) -> None:
    """Hairpin: the packet leaves the pod and comes back into it, so its source must not be the pod's own address."""
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT]))
    both = manifest("self", web(), sleeper("client", image=AGNHOST), labels=APP)
    await world.run(both)

    async def by_itself() -> bool:
        url = f"http://{made['spec']['clusterIP']}/hostname"
        return "self" in await world.shell("self", f"curl -s -m 3 {url} || true", "client")

    assert await holds(by_itself, "the pod answers itself")


async def test_names(world: World) -> None:
    """A Service's name is its ClusterIP; a headless one's are its pods, each with a name of its own."""
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT]))
    await world.create(service("each", selector=APP, ports=[WEB_PORT], clusterIP="None", publishNotReadyAddresses=True))
    named = manifest("web-0", web(), labels=APP, hostname="zero", subdomain="each")
    first, second = await asyncio.gather(world.run(named), world.run(manifest("web-1", web(), labels=APP)))
    await client(world)
    domain = f"{world.namespace}.svc.cluster.local"

    async def resolves(name: str, *wanted: str) -> bool:
        text = (await world.kubectl("exec", "client", "--", "nslookup", name, check=False)).text
        answer = text.partition("\n\n")[2]
        return bool(answer) and all(one in answer for one in wanted)

    ips = (first["status"]["podIP"], second["status"]["podIP"])
    assert await holds(lambda: resolves(f"web.{domain}", made["spec"]["clusterIP"]), "the ClusterIP's name")
    await holds(lambda: resolves(f"each.{domain}", *ips), "the headless Service's name")
    await holds(lambda: resolves(f"zero.each.{domain}", ips[0]), "a pod's own name")
    await answers_from(world, "http://web/hostname", {"zero", "web-1"})
