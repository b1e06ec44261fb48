"""`nodewright view` on a real cluster, in a real browser: it loads, and shows what happens as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from controlplane.cluster.model import CONTROL_PLANE
from tests.browser import Browser, chromium, driven, needs_chromium
from tests.builders.pods import container, manifest, sleeper, web
from tests.builders.services import WEB_PORT, service
from tests.cluster.command_line import PROJECT
from tests.cluster.world import Object, World, is_ready
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
    needs_chromium,
]
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
LIVE = "document.querySelector('#state').textContent === 'live'"
ROW = 'document.querySelector(`tr[data-key="${arguments[0]}"]`)'
TEXT = f"({ROW}?.innerText ?? '')"
DETAIL = "document.querySelector('#detail').innerText"
_OPENS = re.compile(r"Open (http://127\.0\.0\.1:\d+/\S+/)")


@contextlib.asynccontextmanager
async def viewing(name: str) -> AsyncIterator[str]:
    """The address that the command prints; it is ended as by Ctrl-C."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "view", "--name", name),
        stdout=asyncio.subprocess.PIPE,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        found = _OPENS.match(line.decode())
        assert found is not None, line
        yield found[1]
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 0


@pytest.fixture(scope="module")
def window() -> Iterator[str]:
    with chromium() as found:
        yield found


@pytest.fixture
async def page(world: World, window: str) -> AsyncIterator[tuple[Browser, str]]:
    async with viewing(world.cluster.name) as url, driven(window) as browser:
        await browser.open(url)
        await browser.until(f"{LIVE} && document.querySelectorAll('#nodes h2').length >= 2")
        yield browser, url


async def test_it_shows_the_cluster_and_loads_nothing_else(world: World, page: tuple[Browser, str]) -> None:
    browser, _ = page
    await browser.until(f"/\\d of \\d ready/.test({TEXT})", "service/kube-system/kube-dns")
    for node in world.cluster.nodes:
        assert node.address in await browser.value("document.querySelector('#nodes').innerText")
    assert await browser.value("document.querySelectorAll('#wires path').length") >= 3
    assert await browser.log() == []


async def test_a_pod_s_start_is_followed_by_the_record_of_its_node(world: World, page: tuple[Browser, str]) -> None:
    browser, url = page
    await browser.open(f"{url}#/pod/{world.namespace}/slow")
    await browser.until(f"{DETAIL}.includes('does not exist')")
    await world.create(manifest("slow", web(), initContainers=[container("setup", script="sleep 2")], nodeName="node1"))
    await browser.until(f"{DETAIL}.includes('Initialized') && {DETAIL}.includes('not yet')", seconds=10)
    await world.ready("slow")
    # The next message of a watch, with the answer of the agent: no reload, no question of the browser.
    await browser.until(f"{DETAIL}.includes('It is well')", seconds=3)
    await browser.until(f'{DETAIL}.includes("the node\'s own record")')
    bars = await browser.value("[...document.querySelectorAll('.life tbody th')].map((one) => one.innerText.trim())")
    assert any("setup" in one for one in bars) and any("web" in one for one in bars), bars
    took = await browser.value("[...document.querySelectorAll('.life .took')].map((one) => one.innerText)")
    assert any(re.fullmatch(r"\d+ ms|\d\.\d\d s", one) for one in took), took


async def test_why_a_pod_waits_is_said_with_what_to_do(world: World, page: tuple[Browser, str]) -> None:
    browser, url = page
    missing = {"name": "keys", "secret": {"secretName": "keys"}}
    await world.create(
        manifest("held", sleeper(volumeMounts=[{"name": "keys", "mountPath": "/keys"}]), volumes=[missing])
    )
    await browser.open(f"{url}#/pod/{world.namespace}/held")
    await browser.until(f"{DETAIL}.includes('Create Secret')", seconds=30)
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"password": "hunter2"}}
    await world.create(made)
    await world.ready("held")
    await browser.until(f"{DETAIL}.includes('It is well')", seconds=3)
    shown = await browser.value("document.documentElement.textContent")
    assert "hunter2" not in shown and "aHVudGVyMg" not in shown


async def test_a_new_endpoint_of_a_service_shows_within_a_second(world: World, page: tuple[Browser, str]) -> None:
    browser, url = page
    labels = {"app": "web"}
    await world.create(service("web", namespace=world.namespace, selector=labels, ports=[WEB_PORT]))
    key = f"service/{world.namespace}/web"
    await browser.until(f"{TEXT}.includes('no endpoints')", key)
    for count in (1, 2):
        one = manifest(f"web-{count}", web(), nodeName=f"node{count}")
        one["metadata"]["labels"] = labels
        await world.create(one)
        await world.until(await _slice(world), _has_ready(count), f"{count} endpoints ready", kind="endpointslices")
        began = time.monotonic()
        await browser.until(f"{TEXT}.includes('{count} of {count} ready')", key, seconds=1)
        world.stats.append((f"view: endpoint {count} in its slice -> on the page", f"{time.monotonic() - began:.3f} s"))
    await browser.open(f"{url}#/{key}")
    await browser.until(f"{DETAIL}.includes('On nodes node1 and node2') && {DETAIL}.includes('served')")


async def _slice(world: World) -> str:
    """The name of the Service's EndpointSlice, once there is one."""

    async def named() -> str:
        listed = (await world.api.get(world.path("endpointslices")))["items"]
        return next((one["metadata"]["name"] for one in listed), "")

    return str(await until(named))


def _has_ready(count: int) -> Callable[[Object], bool]:
    return lambda part: sum(bool(one["conditions"].get("ready")) for one in part.get("endpoints") or []) == count


async def test_the_walk_of_a_packet_is_shown_step_by_step(world: World, page: tuple[Browser, str]) -> None:
    browser, url = page
    await world.run(manifest("client", sleeper(), nodeName="node1"))
    await browser.open(f"{url}#/packet?from={world.namespace}/client&to=kube-system/kube-dns:53&protocol=udp")
    await browser.until("document.querySelector('.verdict')?.innerText === 'ARRIVES'", seconds=60)
    steps = await browser.value("document.querySelector('.walk').innerText")
    assert "kube-system/kube-dns" in steps and "route:" in steps


async def test_counters_of_a_walk_move_with_traffic(world: World, page: tuple[Browser, str]) -> None:
    browser, url = page
    await world.run(manifest("caller", sleeper(), nodeName="node1"))
    await browser.open(f"{url}#/packet?from={world.namespace}/caller&to=kube-system/kube-dns:53&protocol=udp")
    await browser.until("document.querySelector('#verdict').innerText === 'ARRIVES'", seconds=60)
    for _ in range(3):
        await world.shell("caller", "nslookup kubernetes.default.svc.cluster.local || true")
    await browser.until(
        "[...document.querySelectorAll('.live')].some((one) => one.innerText.includes('+'))", seconds=30
    )


async def test_a_node_shows_its_starts_and_its_daemons_and_a_restart(world: World, page: tuple[Browser, str]) -> None:
    browser, url = page
    await world.run(manifest("lane", web(), nodeName="node2"))
    await browser.open(f"{url}#/node//node2")
    lanes = "[...document.querySelectorAll('.lanes tbody tr')].map((one) => one.innerText)"
    await browser.until(f"{lanes}.some((one) => one.startsWith('lane') && /\\d m?s$/.test(one))", seconds=10)
    shown = "document.querySelector('#node-work').innerText"
    await browser.until(f"{shown}.includes('memory.available') && {shown}.includes('evicts below')", seconds=30)
    assert "of their file system" in await browser.value(shown)
    proxy = "[...document.querySelectorAll('[aria-label=Daemons] tr')].find((one) => one.innerText.startsWith('proxy'))"
    assert "running" in await browser.value(f"{proxy}.innerText")
    before = await browser.value(f"parseInt({proxy}.cells[3].innerText) || 0")
    await world.kill("node2", "proxy")
    await browser.until(f"parseInt({proxy}.cells[3].innerText) > {before}", seconds=30)
    assert await browser.log() == []


async def test_a_pod_s_link_its_bridge_and_the_ways_between_nodes_are_shown(
    world: World, page: tuple[Browser, str]
) -> None:
    browser, url = page
    await world.run(manifest("wired", sleeper(), nodeName="node1"))
    key = f"pod/{world.namespace}/wired"
    await browser.until(f"/veth[0-9a-f]{{11}}/.test({TEXT})", key, seconds=30)
    veth = await browser.value(f"{TEXT}.match(/veth[0-9a-f]+/)[0]", key)
    assert veth in (await world.in_node("node1", "ip", "-o", "link", "show", "type", "veth")).text
    wiring = "document.querySelector('#nodes .wiring').innerText"
    assert "bridge" in await browser.value(wiring) and "→ node2 by eth0" in await browser.value(wiring)
    await browser.open(f"{url}#/node//node1")
    await browser.until("document.querySelector('[aria-label=Links]')?.innerText.includes(arguments[0])", veth)
    assert "net.ipv4.ip_forward" in await browser.value("document.querySelector('[aria-label=Sysctls]').innerText")


async def test_what_a_pod_uses_is_measured_by_its_node(world: World, page: tuple[Browser, str]) -> None:
    browser, url = page
    spins = container("spins", script="while true; do :; done", resources={"limits": {"cpu": "50m"}})
    await world.run(manifest("busy", spins, nodeName="node1"))
    await browser.open(f"{url}#/pod/{world.namespace}/busy")
    plots = "[...document.querySelectorAll('.costs .plot')].map((one) => one.innerText)"
    await browser.until(f"({plots}).some((one) => /^CPU\\s+0\\.0\\d+ cores/.test(one))", seconds=30)
    await browser.until(f"({plots}).some((one) => /^throttled\\s+[1-9]\\d* %/.test(one))", seconds=30)
    await browser.until("document.querySelector('.life .took small')?.innerText.startsWith('avg ')")
    await world.delete("busy", grace=0)


async def test_who_holds_the_disk_is_measured_by_the_node(world: World, page: tuple[Browser, str]) -> None:
    browser, url = page
    fills = container(
        "fills",
        script="dd if=/dev/zero of=/data/big bs=1M count=60; sleep 3600 & wait",
        volumeMounts=[{"name": "scratch", "mountPath": "/data"}],
    )
    await world.run(manifest("full", fills, volumes=[{"name": "scratch", "emptyDir": {}}], nodeName="node2"))
    await browser.open(f"{url}#/node//node2")
    holders = "(document.querySelector('[aria-label=\"Who holds the disk\"]')?.innerText ?? '')"
    await browser.until(f"{holders}.includes('full {world.namespace}')", seconds=90)  # measured once a minute at most
    await browser.until(f"{holders}.includes('volume scratch: 60 MiB')", seconds=90)
    await world.delete("full", grace=0)


async def test_labels_like_scripts_stay_text(world: World, page: tuple[Browser, str]) -> None:
    browser, url = page
    hostile = manifest("hostile", sleeper())
    hostile["metadata"]["annotations"] = {"note": SCRIPT}
    hostile["spec"]["containers"][0]["env"] = [{"name": "A", "value": SCRIPT}]
    await world.create(hostile)
    await browser.open(f"{url}#/pod/{world.namespace}/hostile")
    await browser.until("document.querySelector('#detail')?.textContent.includes('<img src=x onerror')")
    await world.ready("hostile")
    await browser.until(f"{DETAIL}.includes('It is well')")
    assert await browser.value("document.querySelectorAll('script, img, iframe').length") == 1
    assert await browser.value("document.title") == f"{world.cluster.name} · nodewright"
    assert await browser.log() == []


async def test_a_restart_of_the_api_server_is_said_and_survived(world: World, page: tuple[Browser, str]) -> None:
    browser, _ = page
    rows = await browser.value("document.querySelectorAll('tbody tr').length")
    await world.kill(CONTROL_PLANE, "kube-apiserver")
    await browser.until("document.querySelector('#state').innerText.includes('The API server gives no news')")
    assert await browser.value("document.querySelectorAll('tbody tr').length") == rows
    await browser.until(LIVE, seconds=60)
    await world.create(manifest("afterwards", sleeper()))
    await browser.until(f"{TEXT}.includes('Running')", f"pod/{world.namespace}/afterwards", seconds=60)
    await world.until("afterwards", is_ready, "Ready")


async def test_a_killed_agent_is_no_loss(world: World, page: tuple[Browser, str]) -> None:
    browser, url = page
    await world.run(manifest("kept", sleeper(), nodeName="node2"))
    await browser.open(f"{url}#/pod/{world.namespace}/kept")
    await browser.until(f'{DETAIL}.includes("the node\'s own record")')
    await world.kill("node2", "agent")
    await world.agent_well("node2")
    await world.api.patch(world.path("pods", "kept"), {"metadata": {"labels": {"a": "b"}}})
    # An agent keeps its record in memory: what the new one did with the pod is not taken for its start.
    await browser.until(f"{DETAIL}.includes('It is well') && {DETAIL}.includes('was started later')")
