"""The page in a real browser, on a cluster that an API server in memory plays."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from nodelib.kube.definition import CRDS
from tests.browser import Browser, driven, needs_chromium
from tests.builders.cluster_policies import BASELINE, cluster_policy, egress, ingress, pods, spaces
from tests.builders.policies import policy
from tests.fakes.apiserver import FakeApiServer, failure
from tests.unit.view.world import (
    LIVE,
    ROW,
    SCRIPT,
    TEXT,
    Page,
    at_work,
    cluster_policies_defined,
    namespace,
    page,
    put,
    ready_node,
    refused_walk,
    running,
    served,
    shop,
    shop_service,
    shop_slice,
    waiting,
    walked,
    wired,
)
from view.model.network import Enforced, NodeRules, Refused, TableRule
from view.model.nodes import Daemon, NodeWork

pytestmark = needs_chromium
ESCAPE, ENTER, TAB = "\ue00c", "\ue007", "\ue004"


async def test_it_shows_nodes_pods_services_and_the_lines_between_them(browser: Browser) -> None:
    assert "10.0.1.2" in await browser.value(TEXT, "pod/shop/web-1")
    assert "ImagePullBackOff" in await browser.value(TEXT, "pod/shop/late")
    assert "1 of 2 ready" in await browser.value(TEXT, "service/shop/web")
    assert "no endpoints" in await browser.value(TEXT, "service/shop/db")
    nodes = await browser.value("[...document.querySelectorAll('#nodes h2')].map((one) => one.innerText)")
    assert ["node1" in nodes[0], "node2" in nodes[1]] == [True, True]
    await browser.until("document.querySelectorAll('#wires path').length === 2")
    assert await browser.value("document.querySelectorAll('#wires path.unready').length") == 1
    assert await browser.log() == []


async def test_what_is_not_well_is_listed_first_and_leads_there(here: Page, browser: Browser) -> None:
    listed = "[...document.querySelectorAll('#troubles li')].map((one) => one.innerText)"
    assert await browser.value(listed) == ["pod shop/late: ImagePullBackOff 0/1", "service shop/db: no endpoints"]
    starting = waiting("new", "node1")
    starting["metadata"]["creationTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    starting["status"]["containerStatuses"][0]["state"]["waiting"] = {"reason": "ContainerCreating"}
    lost = ready_node("node3", "192.0.2.13", "10.0.3.0/24")
    lost["status"]["conditions"] = []
    for obj in (starting, lost, shop_slice("db", ("web-1", "10.0.1.2", True))):
        await put(here.api, obj)
    await browser.until(f"({listed}).join() === 'node node3: NotReady,pod shop/late: ImagePullBackOff 0/1'")
    assert "ContainerCreating" in await browser.value(TEXT, "pod/shop/new"), "what has just begun is no trouble"
    await browser.value("document.querySelectorAll('#troubles a')[1].click()")
    await browser.until("document.querySelector('#detail').innerText.includes('pod shop/late')")
    await browser.press(ESCAPE)
    await put(here.api, running("late", "10.0.2.3", "node2"))
    await browser.until(f"({listed}).join() === 'node node3: NotReady'")
    await put(here.api, ready_node("node3", "192.0.2.13", "10.0.3.0/24"))
    await browser.until("document.querySelector('#troubles').hidden", seconds=3)
    assert await browser.log() == []


async def test_a_pod_whose_packets_are_dropped_now_is_not_well(here: Page, browser: Browser) -> None:
    listed = "[...document.querySelectorAll('#troubles li')].map((one) => one.innerText)"
    by = ("networkpolicy/shop/deny",)
    await put(here.api, {**policy("deny", namespace="shop", select={"app": "web"}), "kind": "NetworkPolicy"})
    await browser.until(f"{ROW} && ({listed}).length === 2", by[0])
    assert here.answers.taker is not None
    one = Refused("node1", time.time() - 50, 3, "ingress", "shop/web-2", "shop/web-1", "80/TCP", "shop/deny", "", by)
    late = replace(one, source="shop/late", to="192.0.2.9", last=time.time())
    over = replace(one, source="shop/web-1", last=time.time() - 70)
    gone = replace(one, source="shop/gone", last=time.time())
    here.answers.taker.take([one, late, over, gone])
    await browser.until(f"({listed}).length === 3", seconds=9)
    assert await browser.value(listed) == [
        "pod shop/late: ImagePullBackOff 0/1, packets to 192.0.2.9 dropped by shop/deny",
        "pod shop/web-2: packets to shop/web-1 dropped by shop/deny",
        "service shop/db: no endpoints",
    ]
    links = "[...document.querySelectorAll('#troubles li:nth-child(2) a')].map((one) => one.getAttribute('href'))"
    assert await browser.value(links) == ["#/pod/shop/web-2", "#/networkpolicy/shop/deny"]
    await browser.until(f"({listed}).length === 2", seconds=40)
    assert await browser.log() == []


async def test_lines_follow_when_a_pod_that_starts_for_long_is_listed(here: Page, browser: Browser) -> None:
    await put(here.api, running("late", "10.0.2.3", "node2"))
    await put(here.api, shop_slice("db", ("web-1", "10.0.1.2", True)))
    starting = waiting("new", "node1")
    began = datetime.now(UTC) - timedelta(seconds=6)
    starting["metadata"]["creationTimestamp"] = began.strftime("%Y-%m-%dT%H:%M:%SZ")
    starting["status"]["containerStatuses"][0]["state"]["waiting"] = {"reason": "ContainerCreating"}
    await put(here.api, starting)
    await browser.until(f"document.querySelector('#troubles').hidden && ({TEXT}).includes('Creating')", "pod/shop/new")
    await browser.until("!document.querySelector('#troubles').hidden", seconds=9)
    middle = f"(({ROW}.getBoundingClientRect().top + {ROW}.getBoundingClientRect().bottom) / 2)"
    begins = (
        "[...document.querySelectorAll('#wires path')].map((one) => one.getPointAtLength(0).y"
        " + document.querySelector('#wires').getBoundingClientRect().top)"
    )
    await browser.until(f"{begins}.some((one) => Math.abs(one - {middle}) < 2)", "service/shop/db", seconds=1)


async def test_a_new_endpoint_shows_within_a_second(here: Page, browser: Browser) -> None:
    both = shop_slice("web", ("web-1", "10.0.1.2", True), ("web-2", "10.0.2.2", True))
    await put(here.api, both)
    await browser.until(f"({TEXT}).includes('2 of 2 ready')", "service/shop/web", seconds=1)
    await browser.until("!document.querySelector('#wires path.unready')", seconds=1)


async def test_a_pod_s_start_is_followed_with_cause_and_remedy(here: Page, browser: Browser) -> None:
    await browser.open(f"{here.url}#/pod/shop/late")
    shown = "document.querySelector('#detail').innerText"
    await browser.until(f"{shown}.includes('Check the image reference')")
    assert await browser.value(f"{shown}.includes('nosuch.example/web:1')")
    assert await browser.value("[...document.querySelectorAll('.marks td')].at(-1).innerText") == "not yet"
    await put(here.api, running("late", "10.0.2.3", "node2"))
    await browser.until(f"{shown}.includes('It is well')", seconds=3)
    assert await browser.value("document.querySelectorAll('.life rect').length") == 3
    assert "after 3.00 s" in await browser.value("[...document.querySelectorAll('.marks td')].at(-1).innerText")
    await here.api.remove("/api/v1/pods/late")
    await browser.until(f"{shown}.includes('does not exist')")


async def test_the_work_of_a_node_is_shown_and_followed(here: Page, browser: Browser) -> None:
    now = time.time()
    here.answers.works["node1"] = at_work(now)
    await browser.open(f"{here.url}#/node")
    shown = "document.querySelector('#node-work').innerText"
    await browser.until(f"{shown}.includes('1 earlier') || {shown}.includes('2 of 3 ready')")
    lanes = await browser.value("[...document.querySelectorAll('.lanes tbody tr')].map((one) => one.innerText)")
    assert [one.split()[0] for one in lanes] == ["web-1", "web-2", "late"]
    assert await browser.value("document.querySelectorAll('.lanes rect.ready').length") == 2
    text = await browser.value(shown)
    for part in ("90 MiB left of 1000 MiB", "met for", "evicts below 100 MiB", "3 of 9 MiB, 1 MiB/s", "signal 9"):
        assert part in text, part
    assert "<script>" in text, "the message of the eviction is text"
    assert "Pods of this node hold 700 MiB, images 305 MiB. In use on the whole disk: 300 MiB" in text
    holders = (
        "[...document.querySelectorAll('[aria-label=\"Who holds the disk\"] tbody tr')].map((one) => one.innerText)"
    )
    first, second = await browser.value(holders)
    assert first.startswith("web-2 shop") and "600 MiB" in first and "volume scratch: 590 MiB" in first
    assert second.startswith("web-1 shop") and "<script>" in first
    bars = "[...document.querySelectorAll('[aria-label=\"Who holds the disk\"] .meter .plain')]"
    widths = await browser.value(f"{bars}.map((one) => one.getAttribute('width'))")
    assert widths == ["60.0%", "10.0%"], "of the whole disk, as the bars beside them"
    signals = await browser.value("document.querySelector('[aria-label=\"Thresholds of evictions\"]').innerText")
    assert "most of what pods hold: web-2 shop 600 MiB" in signals, "who holds it stands beside how full it is"
    assert await browser.value("document.querySelectorAll('script, img, iframe').length") == 1
    daemons = "[...document.querySelectorAll('[aria-label=Daemons] tbody tr')].map((one) => one.innerText)"
    assert ["running" in one for one in await browser.value(daemons)] == [True, False]

    # The next news of a pod of the node brings its new answer: no reload, no question of the browser.
    here.answers.works["node1"] = NodeWork(daemons=(Daemon("proxy", True, 9, 1.0, 2, "exit code 1"),))
    await put(here.api, running("web-1", "10.0.1.9", "node1"))
    await browser.until(f"{daemons}[0].includes('running')", seconds=3)
    assert await browser.log() == []


async def test_the_nodes_are_reached_and_left_by_the_keyboard(here: Page, browser: Browser) -> None:
    here.answers.works["node1"] = at_work(time.time())
    await browser.open(f"{here.url}#/node//node1")
    await browser.until("document.querySelectorAll('.lanes tbody tr').length === 3")
    await browser.value("document.querySelector('.lanes a').focus()")
    await put(here.api, running("web-1", "10.0.1.9", "node1"))
    here.answers.works["node1"] = replace(at_work(time.time()), evicted=())
    await browser.until("document.querySelector('#node-work').innerText.includes('No pod was evicted')")
    assert await browser.value("document.activeElement.innerText") == "web-1", "what is drawn anew keeps the focus"
    await browser.press(ENTER)
    await browser.until("document.querySelector('#detail').innerText.includes('pod shop/web-1')")
    await browser.press(ESCAPE)
    await browser.until("!document.querySelector('#node-view').hidden && location.hash === '#/node//node1'")
    here.answers.works["node2"] = NodeWork(silent=("its agent is older: `up` again",))
    await browser.open(f"{here.url}#/node//node2")
    await browser.until("document.querySelector('#node-work .box code')?.innerText === 'up'")
    del here.answers.works["node2"]
    await put(here.api, running("web-2", "10.0.2.9", "node2"))
    await browser.until("document.querySelector('#node-work').innerText.includes('no agent of this node answers')")


async def test_counters_of_a_walk_move_while_it_is_looked_at(here: Page, browser: Browser) -> None:
    here.answers.walk = walked(100)
    await browser.open(f"{here.url}#/packet?from=shop/web-1&to=shop/web:80")
    await browser.until("document.querySelector('#verdict').innerText === 'ARRIVES'")
    await browser.until("document.querySelector('.live')?.innerText === 'no packet since'")
    await browser.value("document.querySelector('#walk summary').click()")
    here.answers.walk = walked(112)
    await browser.until("document.querySelector('.live')?.innerText.includes('+12')", seconds=6)
    assert "[112 packets]" in await browser.value("document.querySelector('.walk').innerText")
    assert await browser.value("document.querySelectorAll('.walk a.name').length") == 0, "there is no such policy"
    await put(here.api, {**policy("deny", namespace="shop"), "kind": "NetworkPolicy"})
    await browser.until("document.querySelector('.walk a.name')?.innerText.includes('shop/deny')", seconds=6)
    assert await browser.value("document.querySelector('#walk details').open"), "what was opened stays so"
    here.answers.walk = walked(3)  # the chain was written anew, and counts from the beginning
    await browser.until("!document.querySelector('.live') && document.querySelector('#walk').innerText.includes('[3 ')")
    await browser.open(f"{here.url}#/packet?from=shop/web-2&to=shop/web:80")
    await browser.until("document.querySelector('#from').value === 'shop/web-2'")
    await browser.until("document.querySelector('#walk').innerText.includes('[3 ')")
    assert await browser.log() == []


async def test_dropped_packets_are_shown_as_they_happen(here: Page, browser: Browser) -> None:
    await browser.open(f"{here.url}#/packet")
    shown = "document.querySelector('#refused').innerText"
    await browser.until(f"{shown}.includes('answer root on their own machine')")
    assert here.answers.taker is not None
    here.answers.taker.problem("", "")
    await browser.until(f"{shown}.includes('No packet was dropped')", seconds=2)
    by = ("networkpolicy/shop/deny",)
    await put(here.api, {**policy("deny", namespace="shop", select={"app": "web"}), "kind": "NetworkPolicy"})
    await browser.until(f"{ROW}", by[0])
    one = Refused("node1", time.time(), 3, "ingress", "shop/web-1", "shop/db-1", "5432/TCP", "shop/deny", SCRIPT, by)
    gone = replace(one, source="192.0.2.7", by="shop/gone", policies=("networkpolicy/shop/gone",))
    outside = replace(one, source="192.0.2.9", to="fd00::7", port="53/UDP")
    here.answers.taker.take([replace(gone, last=1.0), one, outside])
    await browser.until(f"{shown}.includes('5432/TCP') && {shown}.includes('<script>')", seconds=1)
    words = await browser.value(shown)
    assert words.startswith("Dropped packets") and "refus" not in words.lower(), "who sends them sees a timeout"
    names = "[...document.querySelectorAll('#refused a.name:not(.way)')].map((one) => one.getAttribute('href'))"
    linked = ["#/pod/shop/web-1", "#/networkpolicy/shop/deny", "#/networkpolicy/shop/deny"]
    assert await browser.value(names) == linked, "what is gone has no link"
    ways = "[...document.querySelectorAll('#refused a.way')].map((one) => one.getAttribute('href'))"
    links = await browser.value(ways)
    assert links == [
        "#/packet?from=pod%2Fshop%2Fweb-1&to=pod%2Fshop%2Fdb-1%3A5432&protocol=tcp",
        "#/packet?from=192.0.2.9&to=%5Bfd00%3A%3A7%5D%3A53&protocol=udp",
        "#/packet?from=192.0.2.7&to=pod%2Fshop%2Fdb-1%3A5432&protocol=tcp",
    ]
    assert await browser.value("document.querySelectorAll('script, img, iframe').length") == 1
    assert await browser.log() == []


async def test_the_rule_that_ends_a_packet_s_way_stands_above_the_others(here: Page, browser: Browser) -> None:
    admin = {**cluster_policy("no-db", ingress=[ingress("Deny")]), "kind": "ClusterNetworkPolicy"}
    for obj in (cluster_policies_defined(), namespace("shop"), admin):
        await put(here.api, obj)
    here.answers.walk = refused_walk()
    await browser.open(f"{here.url}#/packet?from=shop/web-1&to=shop/web-2:80")
    await browser.until("document.querySelector('#walk .box a')?.innerText === 'no-db'")
    box = "document.querySelector('#walk .box')"
    text = await browser.value(f"{box}.innerText")
    for part in ("(Admin tier, ingress[0] <script>", "– on node node2", "ip policy deny-ingress-1: drop"):
        assert part in text
    assert await browser.value("document.querySelectorAll('#walk .box').length") == 1
    where = "document.querySelector('#walk').innerText.split('dropped: Cluster').length - 1"
    assert await browser.value(where) == 2, "above, and as the step that it is"
    steps = await browser.value("[...document.querySelectorAll('.walk li.against')].map((one) => one.innerText)")
    assert [one.split()[0] for one in steps] == ["dropped:", "DROPPED"]
    hrefs = await browser.value("[...document.querySelectorAll('#walk a')].map((one) => one.getAttribute('href'))")
    assert {"#/clusternetworkpolicy//no-db", "#/node//node2", "#/pod/shop/web-1"} <= set(hrefs)
    assert await browser.value("document.querySelectorAll('script, img, iframe').length") == 1
    assert await browser.log() == []


async def test_a_pod_that_is_well_and_whose_packets_are_dropped_says_so(here: Page, browser: Browser) -> None:
    await put(here.api, {**policy("deny", namespace="shop", select={"app": "web"}), "kind": "NetworkPolicy"})
    await browser.open(f"{here.url}#/pod/shop/web-1")
    shown = "document.querySelector('#detail').innerText"
    await browser.until(f"{shown}.includes('It is well')")
    assert here.answers.taker is not None
    by = ("networkpolicy/shop/deny",)
    one = Refused("node1", time.time() - 4, 3, "ingress", "shop/web-2", "shop/web-1", "80/TCP", "shop/deny", SCRIPT, by)
    other = replace(one, to="shop/web-2", source="shop/late", by="other")
    here.answers.taker.take([one, other])
    await browser.until(f"{shown}.includes('3 packets dropped, the last 4 s ago: shop/web-2 → shop/web-1 port 80/TCP')")
    text = await browser.value(shown)
    assert "by ingress rules of shop/deny" in text and "would be allowed by <script>" in text and "other" not in text
    assert "Running and ready, but packets are dropped" in text and "It is well" not in text
    links = "[...document.querySelectorAll('[data-part=refused] a')].map((one) => one.innerText)"
    assert await browser.value(links) == ["shop/web-2", "shop/web-1", "shop/deny"]
    assert await browser.value("document.querySelectorAll('script, img, iframe').length") == 1


async def test_a_pod_with_the_name_of_a_service_is_traced_to_as_the_pod_that_it_is(
    here: Page, browser: Browser
) -> None:
    await put(here.api, running("db", "10.0.1.7", "node1"))
    links = "[...document.querySelectorAll('#detail .links a')].map((one) => one.getAttribute('href'))"
    await browser.open(f"{here.url}#/pod/shop/db")
    await browser.until("document.querySelector('#detail .links')")
    assert await browser.value(links) == ["#/packet?from=pod%2Fshop%2Fdb", "#/packet?to=pod%2Fshop%2Fdb"]
    await browser.open(f"{here.url}#/service/shop/db")
    await browser.until(f"({links}).length === 1")
    assert await browser.value(links) == ["#/packet?to=service%2Fshop%2Fdb"]
    await browser.open(f"{here.url}#/packet")
    await browser.until("document.querySelectorAll('#targets option').length === 6")
    targets = await browser.value("[...document.querySelectorAll('#targets option')].map((one) => one.value)")
    assert "shop/db" in targets and "pod/shop/db" in targets and "shop/web-1" in targets


async def test_what_a_pod_waits_for_is_said_once(here: Page, browser: Browser) -> None:
    await browser.open(f"{here.url}#/pod/shop/late")
    await browser.until("document.querySelector('#detail .do')")
    boxes = await browser.value("[...document.querySelectorAll('#detail .box')].map((one) => one.innerText)")
    assert len(boxes) == 1 and boxes[0].startswith("Pending, waits on container main: ImagePullBackOff"), boxes


async def test_what_is_wrong_with_a_service_is_said_as_of_a_pod(here: Page, browser: Browser) -> None:
    await browser.open(f"{here.url}#/service/shop/db")
    await browser.until("document.querySelector('#detail .box')?.innerText.includes('matches no pod')")
    assert "problem:" not in await browser.value("document.querySelector('#detail pre').innerText")
    await browser.open(f"{here.url}#/service/shop/web")
    await browser.until("document.querySelector('#detail pre a.name')")
    links = await browser.value("[...document.querySelectorAll('#detail pre a.name')].map((one) => one.innerText)")
    assert {"shop/web", "shop/web-1"} <= set(links)


async def test_what_a_pod_uses_is_drawn_while_it_is_looked_at(here: Page, browser: Browser) -> None:
    here.answers.uses = True
    await browser.open(f"{here.url}#/pod/shop/web-1")
    rows = "[...document.querySelectorAll('.costs tbody tr')].map((one) => one.innerText)"
    await browser.until(f"({rows}).length === 2 && ({rows})[0].includes('0.50 cores')", seconds=10)
    text = await browser.value(rows)
    assert "25 % of the time" in text[0] and "64 MiB" in text[0] and "<script>" in text[0]
    assert "answers in\n4 ms" in text[1]
    assert await browser.value("document.querySelectorAll('.costs .spark').length") == 4
    assert await browser.value("document.querySelectorAll('script, img, iframe').length") == 1
    assert await browser.log() == []


async def test_policies_are_wired_to_the_pods_that_they_isolate(here: Page, browser: Browser) -> None:
    await put(here.api, {**policy("deny", namespace="shop", select={"app": "web"}), "kind": "NetworkPolicy"})
    await browser.until(f"({TEXT}).includes('2 pods')", "networkpolicy/shop/deny")
    assert "isolated by deny (ingress)" in await browser.value(TEXT, "pod/shop/web-1")
    assert "isolated" not in await browser.value(TEXT, "pod/shop/late")
    await browser.until("document.querySelectorAll('#wires path.policy').length === 2")
    rule = TableRule("policy-ingress-7", "ip saddr @peer-1 accept", 41, SCRIPT)
    here.answers.enforced = Enforced((NodeRules("node1", (rule,)),))
    await browser.value(f"{ROW}.querySelector('a').click()", "networkpolicy/shop/deny")
    shown = "document.querySelector('#detail').innerText"
    await browser.until(f"{shown}.includes('Enforced on node1') && {shown}.includes('@peer-1 accept')")
    assert await browser.value("document.querySelector('.rules td').innerText") == "41"
    here.answers.enforced = Enforced((NodeRules("node1", (replace(rule, packets=42),)),))
    await browser.until("document.querySelector('.rules td').innerText === '42'", seconds=9)
    assert await browser.value("document.querySelectorAll('script, img, iframe').length") == 1
    await here.api.remove("/apis/networking.k8s.io/v1/networkpolicies/deny")
    await browser.until(f"{shown}.includes('does not exist') && !({TEXT}).includes('isolated')", "pod/shop/web-1")


async def test_cluster_policies_of_both_tiers_are_drawn_where_they_decide(here: Page, browser: Browser) -> None:
    admin = cluster_policy("no-db", subject=spaces(team="shop"), ingress=[ingress("Deny", name=SCRIPT)])
    web = pods("web", team="shop")
    base = cluster_policy("closed", BASELINE, subject=web, ingress=[ingress("Pass")], egress=[egress("Deny")])
    for one in (cluster_policies_defined(), namespace("shop", team="shop"), namespace("other")):
        await put(here.api, one)
    for one in (base, admin):
        await put(here.api, {**one, "kind": "ClusterNetworkPolicy"})
    await put(here.api, {**policy("deny", namespace="shop", select={"app": "web"}), "kind": "NetworkPolicy"})
    await browser.until(f"({TEXT}).includes('2 pods')", "clusternetworkpolicy//no-db")
    await browser.until(f"({TEXT}).includes('2 pods')", "networkpolicy/shop/deny")
    names = "[...document.querySelectorAll('[aria-label=\"Network policies\"] tbody th a')].map((one) => one.innerText)"
    assert await browser.value(names) == ["no-db", "deny", "closed"], "in the order in which they decide"
    assert "tier Admin, priority 10: ingress" in await browser.value(TEXT, "clusternetworkpolicy//no-db")
    row = await browser.value(TEXT, "pod/shop/web-1")
    assert "under no-db (tier Admin: ingress)" in row and "under closed (tier Baseline: ingress, egress)" in row
    assert "isolated by deny (ingress)" in row
    assert "closed" not in await browser.value(TEXT, "pod/shop/late")
    await browser.until("document.querySelectorAll('#wires path.policy').length === 6")

    # Which pods they select follows the labels of namespaces.
    await put(here.api, namespace("shop"))
    await browser.until(f"({TEXT}).includes('0 pods')", "clusternetworkpolicy//no-db")
    await put(here.api, namespace("shop", team="shop"))

    rule = TableRule("deny-ingress-7-0", "counter drop", 41, f"Admin ingress[0] of no-db {SCRIPT}")
    here.answers.enforced = Enforced((NodeRules("node1", (rule,)),), (f"spec.egress[0]: {SCRIPT}",))
    await browser.value(f"{ROW}.querySelector('a').click()", "clusternetworkpolicy//no-db")
    shown = "document.querySelector('#detail').innerText"
    await browser.until(f"{shown}.includes('Enforced on node1') && {shown}.includes('counter drop')")
    text = await browser.value(shown)
    assert "cluster network policy no-db" in text and "Not understood" in text and "spec.egress[0]: <script>" in text
    assert await browser.value("document.querySelectorAll('script, img, iframe').length") == 1
    assert await browser.log() == []

    await here.api.remove(f"{CRDS}/clusternetworkpolicies.policy.networking.k8s.io")
    await browser.until(f"{shown}.includes('does not exist') && !({TEXT}).includes('under')", "pod/shop/web-1")
    assert await browser.value(LIVE), "a cluster without their CRD is none whose news fail"


async def test_the_row_of_a_pod_under_many_policies_stays_small(here: Page, browser: Browser) -> None:
    for one in (cluster_policies_defined(), namespace("shop")):
        await put(here.api, one)
    for at in range(6):
        one = cluster_policy(f"p{at}", priority=at, ingress=[ingress("Accept")])
        await put(here.api, {**one, "kind": "ClusterNetworkPolicy"})
    await browser.until(f"({TEXT}).includes('under p3') && ({TEXT}).includes('and 2 more policies')", "pod/shop/web-1")
    assert "under p4" not in await browser.value(TEXT, "pod/shop/web-1")
    await browser.until(f"({TEXT}).includes('2 pods')", "clusternetworkpolicy//p5")


async def test_who_may_not_list_cluster_policies_is_told_and_sees_the_rest(window: str) -> None:
    async def refuse(_: web.Request, __: bytes) -> web.StreamResponse:
        return failure(403, "Forbidden")

    async with FakeApiServer() as api:
        api.nonsense = lambda request: refuse if request.path == CRDS else None
        async with served(api) as here, driven(window) as browser:
            await shop(api)
            await browser.open(here.url)
            await browser.until("document.body.innerText.includes('clusternetworkpolicies are not shown: ')")
            await browser.until(f"{LIVE} && document.querySelectorAll('tbody tr').length === 5")


async def test_bridges_links_and_routes_are_shown_where_they_are(here: Page, browser: Browser) -> None:
    here.answers.wires["node1"] = wired()
    await put(here.api, running("web-1", "10.0.1.9", "node1"))
    await browser.until(f"({TEXT}).includes('veth7')", "pod/shop/web-1", seconds=5)
    card = "document.querySelector('#nodes .wiring:not([hidden])').innerText"
    text = await browser.value(card)
    assert "nw0 bridge 10.0.1.1/24, 1 link" in text and "10.0.2.0/24 → node2 by eth0" in text
    assert await browser.value("document.querySelectorAll('#nodes .wiring[hidden]').length") == 1, (
        "of node2 none is known"
    )
    here.answers.works["node1"] = at_work(time.time())
    await browser.open(f"{here.url}#/node//node1")
    rows = "[...document.querySelectorAll('[aria-label=Links] tbody tr')].map((one) => one.innerText)"
    await browser.until(f"({rows}).length === 3")
    assert "web-1 shop\nin bridge nw0" in (await browser.value(rows))[2]
    await browser.value("[...document.querySelectorAll('[aria-label=Links] summary')].at(-1).click()")
    await browser.until("document.querySelector('[aria-label=Links] details[open] pre').innerText.includes('ifname')")
    sysctls = await browser.value("document.querySelector('[aria-label=Sysctls]').innerText")
    assert "net.ipv4.ip_forward" in sysctls and "packets of pods are forwarded" in sysctls
    assert await browser.log() == []


async def test_names_and_labels_of_others_are_text(here: Page, browser: Browser) -> None:
    await browser.open(f"{here.url}#/pod/shop/web-1")
    await browser.until("document.querySelector('#detail pre')?.textContent.includes('<script>document.title=')")
    bad = waiting("late", "node2")
    state = bad["status"]["containerStatuses"][0]["state"]["waiting"]
    state |= {"message": SCRIPT, "reason": SCRIPT}
    await put(here.api, bad)
    await browser.until(f"({TEXT}).includes('<script>')", "pod/shop/late")
    await browser.open(f"{here.url}#/pod/shop/late")
    await browser.until("document.querySelector('#detail').innerText.includes('<img src=x')")
    assert await browser.value("document.querySelectorAll('script, img, iframe').length") == 1, "its own script"
    assert await browser.value("document.title") == "lab · nodewright"
    assert await browser.log() == []


async def test_markup_cannot_even_be_made_by_its_own_scripts(browser: Browser) -> None:
    """What the policy in the header is for: the browser refuses, should a script of ours ever try."""
    tried = "(() => { try { document.body.innerHTML = '<b>a</b>'; } catch (error) { return error.name; } })()"
    assert await browser.value(tried) == "TypeError"
    await browser.value("document.body.append(Object.assign(document.createElement('style'), {textContent: 'a{}'}))")
    assert any("Content Security Policy" in one for one in await browser.log())


async def test_it_asks_nobody_but_its_own_server(here: Page, browser: Browser) -> None:
    await browser.open(f"{here.url}#/packet?from=shop/web-1&to=shop/web")
    await browser.until("document.querySelector('#walk').innerText.includes('No answer')")
    asked = await browser.value("performance.getEntriesByType('resource').map((one) => one.name)")
    assert len(asked) >= 10
    assert {urlsplit(one).netloc for one in asked} == {f"127.0.0.1:{here.port}"}


async def test_the_keyboard_is_enough(here: Page, browser: Browser) -> None:
    await browser.press("/")
    await browser.press(*"web-1")
    await browser.until(f"{ROW}.hidden", "pod/shop/late")
    assert not await browser.value(f"{ROW}.hidden", "pod/shop/web-1")
    await browser.press(ESCAPE)
    await browser.until(f"!{ROW}.hidden", "pod/shop/late")
    await browser.value(f"{ROW}.querySelector('a').focus()", "service/shop/db")
    await browser.press(ENTER)
    await browser.until("document.querySelector('#detail').innerText.includes('matches no pod')")
    assert await browser.value("document.querySelector('#detail').contains(document.activeElement)")
    await browser.press(ESCAPE)
    await browser.until("document.querySelector('#detail').hidden")
    assert await browser.value("document.activeElement.innerText") == "db", "the focus is where it was"


async def test_a_filter_ends_with_its_view(here: Page, browser: Browser) -> None:
    shown = "!document.querySelector('.filter').hidden"
    await browser.press("/")
    await browser.press(*"web-1")
    await browser.until(f"{ROW}.hidden", "pod/shop/late")
    await browser.value(f"{ROW}.querySelector('a').click()", "pod/shop/web-1")
    await browser.until("!document.querySelector('#detail').hidden")
    await browser.press(ESCAPE)
    await browser.until("document.querySelector('#detail').hidden")
    assert await browser.value(f"{ROW}.hidden", "pod/shop/late"), "an object's panel is no other view"
    await browser.value("document.querySelector('#to-node').click()")
    await browser.until("!document.querySelector('#node-view').hidden")
    assert not await browser.value(shown), "there is nothing to filter"
    await browser.press("/")
    assert await browser.value("document.activeElement.id") != "filter"
    await browser.value("document.querySelector('#to-cluster').click()")
    await browser.until(f"{shown} && !{ROW}.hidden", "pod/shop/late")
    assert await browser.value("document.querySelector('#filter').value") == ""
    assert await browser.log() == []


async def test_tables_can_be_read_aloud(browser: Browser) -> None:
    heads = await browser.value(
        "[...document.querySelectorAll('main table')].map((one) => [one.getAttribute('aria-label'),"
        " [...one.querySelectorAll('thead th')].every((head) => head.scope === 'col' && head.innerText),"
        " [...one.tBodies[0].rows].every((row) => row.cells[0].scope === 'row')])"
    )
    assert heads == [
        ["Services", True, True],
        ["Network policies", True, True],
        ["Pods on node1", True, True],
        ["Pods on node2", True, True],
    ]
    assert await browser.value("document.querySelector('#state').getAttribute('role')") == "status"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
async def test_it_fits_and_can_be_read(here: Page, browser: Browser, width: int, dark: bool) -> None:
    await browser.size(width, 800, dark=dark)
    here.answers.works["node1"] = at_work(time.time())
    here.answers.wires["node1"] = wired()
    here.answers.uses = True
    many = Refused(
        "node1", time.time(), 3, "ingress", "shop/a-long-name-1", "shop/web-1", "80/TCP", "shop/deny", "a rule"
    )
    for path in ("#/pod/shop/web-1", "#/pod/shop/late", "#/service/shop/web", "#/packet", "#/node//node1", ""):
        await browser.open(here.url + path)
        await browser.until(LIVE)
        if path.startswith("#/pod"):
            await browser.until("document.querySelectorAll('.costs tbody tr').length === 2")
        if path.endswith("late"):
            await browser.until("document.querySelector('.life .took')?.innerText && document.querySelector('.marks')")
        if path == "#/packet":
            await browser.until("document.querySelector('#refused h2')")
            assert here.answers.taker is not None
            here.answers.taker.take([many])
            await browser.until("document.querySelector('#refused tbody tr')")
        if path.startswith("#/node"):
            await browser.until("document.querySelectorAll('.lanes tbody tr').length === 3")
            for part in ("td a", "td small", ".none", ".legend .key", ".none .bad", "td .dot"):
                assert await _contrast(browser, f"#node-work {part}") >= 4.5, part
        wide = "Math.max(document.documentElement.scrollWidth, document.querySelector('#detail').scrollWidth)"
        assert await browser.value(wide) <= width, path
        cut = "[...document.querySelectorAll('td, th, .dot')].filter((one) => one.scrollWidth > one.clientWidth + 1)"
        assert await browser.value(f"{cut}.map((one) => one.innerText)") == [], path
        broken = "[...document.querySelectorAll('#node-work td .dot')].filter((one) => one.offsetHeight > 30)"
        assert await browser.value(f"{broken}.map((one) => one.innerText)") == [], "a word is not broken"
    for part in ("body", "#state", "th a", ".space", "td small"):
        assert await _contrast(browser, part) >= 4.5, part


async def _contrast(browser: Browser, selector: str) -> float:
    """By WCAG 2."""
    text, back = await browser.value(
        "(() => { const one = document.querySelector(arguments[0]); let under = one;"
        " while (getComputedStyle(under).backgroundColor === 'rgba(0, 0, 0, 0)') under = under.parentElement;"
        " return [getComputedStyle(one).color, getComputedStyle(under).backgroundColor] })()",
        selector,
    )
    light, dark = sorted((_luminance(text), _luminance(back)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(one) / 255 for one in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


async def test_when_the_api_server_or_the_page_s_own_server_is_away_it_says_so_and_comes_back(window: str) -> None:
    async with page() as first, driven(window) as browser:
        await shop(first.api)
        await browser.open(first.url)
        await browser.until(f"{LIVE} && document.querySelectorAll('tbody tr').length === 5")
        first.api.fail_with = [500] * 12
        first.api.drop_watches()
        await browser.until("document.querySelector('#state').innerText.includes('The API server gives no news')")
        assert await browser.value("document.querySelectorAll('tbody tr').length") == 5
        await browser.until(LIVE, seconds=40)
        async with served(first.api) as other:
            await browser.open(other.url)
            await browser.until(LIVE)
        await browser.until("document.querySelector('#state').innerText.includes('No connection')")


async def test_a_thousand_pods_and_five_hundred_services(window: str) -> None:
    async with page() as here, driven(window) as browser:
        await shop(here.api)
        for at in range(1000):
            address = f"10.0.{3 + at // 250}.{at % 250}"
            await put(here.api, running(f"many-{at:04}", address, f"node{1 + at % 2}"))
        for at in range(500):
            name = f"svc-{at:03}"
            await put(here.api, shop_service(name, f"10.9.{1 + at // 250}.{at % 250}"))
            await put(here.api, shop_slice(name, (f"many-{at:04}", f"10.0.{3 + at // 250}.{at % 250}", True)))
        await browser.open(here.url)
        await browser.until("document.querySelectorAll('tbody tr').length === 1505", seconds=60)
        await put(here.api, running("many-0500", "10.0.99.99", "node1"))
        await browser.until(f"({TEXT}).includes('10.0.99.99')", "pod/shop/many-0500", seconds=2)
