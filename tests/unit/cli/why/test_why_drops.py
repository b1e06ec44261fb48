"""`why` of a pod whose packets a network policy refuses."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.policies.drops_text import allow_dns
from cli.why import judge, show
from cli.why.model import Explained
from cli.why.sources import Sources
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from policy.drops.plan.document import ReportedDrop, reported_drop
from policy.edge import socket_server
from tests.builders.packets import UDP, packet
from tests.unit.cli.why.test_why import NOW, explained, page
from tests.unit.policy.drops.test_log import DENY, A, B, World
from tests.waiting import until


def drop(come: str, to: str, port: int, last: float) -> ReportedDrop:
    obj: Json = {"number": 1, "first": 1.0, "last": last, "count": 3, "direction": "Egress", "policies": ["shop/p"]}
    obj |= {"from": {"address": A, "pod": come}, "to": {"address": B, "pod": to, "port": port, "protocol": "UDP"}}
    obj |= {"wouldAllow": "shop/p egress[0], if it listed port 53/UDP"}
    one = reported_drop(obj)
    assert one is not None
    return one


def shown(*drops: ReportedDrop) -> list[str]:
    out = io.StringIO()
    (one,) = judge.with_drops([Explained(explained(), True)], drops)
    show.one(one, page(out))
    return out.getvalue().splitlines()


def test_a_dns_query_that_a_policy_eats_is_named_with_what_would_allow_it() -> None:
    lines = shown(drop("shop/web", "kube-system/dns", 53, NOW - 5), drop("shop/other", "shop/db", 1, NOW))
    assert lines[1:] == [
        "refused 5 s ago: DNS queries of shop/web to kube-system/dns port 53/UDP, 3 packets: refused by shop/p "
        "(egress)",
        "  do: It would be allowed by shop/p egress[0], if it listed port 53/UDP. To let its pods ask for names: "
        "`kubectl patch networkpolicy p -n shop --type=json -p "
        '\'[{"op": "add", "path": "/spec/egress/-", "value": {"to": [{"namespaceSelector": {"matchLabels": '
        '{"kubernetes.io/metadata.name": "kube-system"}}}], "ports": [{"port": 53, "protocol": "UDP"}, '
        '{"port": 53, "protocol": "TCP"}]}}]\'`.',
    ]


@pytest.mark.parametrize(
    ("why", "path"),
    [
        ("egress[0] allows 53/UDP, but only to others", "/spec/egress/-"),
        ("it has no egress rule, so it allows nothing", "/spec/egress"),
    ],
)
def test_dns_that_a_pod_may_not_ask_is_allowed_by_one_command(why: str, path: str) -> None:
    one = replace(drop("shop/web", "kube-system/dns", 53, NOW - 5), why=(("shop/p", why),))
    advice = allow_dns(one)
    assert advice.startswith("To let its pods ask for names: `kubectl patch networkpolicy p -n shop --type=json -p '[")
    (patch,) = json.loads(advice.partition("-p '")[2].partition("'`")[0])
    (rule,) = [patch["value"]] if path.endswith("-") else patch["value"]
    assert patch["path"] == path and {"port": 53, "protocol": "UDP"} in rule["ports"]
    assert rule["to"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]


@pytest.mark.parametrize(
    "change",
    [{"port": 80}, {"direction": "Ingress"}, {"policies": ()}, {"policies": ("x'y/p",)}, {"denied": "cnp x: rule 1"}],
)
def test_other_drops_have_no_such_command(change: dict[str, Any]) -> None:
    assert allow_dns(replace(drop("shop/web", "kube-system/dns", 53, NOW), **change)) == ""


def test_of_many_the_newest_are_shown_and_the_rest_is_where() -> None:
    lines = shown(*(drop("shop/x", "shop/web", port, NOW - port) for port in range(1, 20)))
    assert [line.split(" port ")[1].split("/")[0] for line in lines if line.startswith("refused")] == list("12345")
    assert lines[-1] == "and 14 more; `./nodewright drops shop/web` lists them"


def test_a_pod_is_as_well_as_before() -> None:
    (one,) = judge.with_drops([Explained(explained(), True)], [drop("shop/web", "", 1, NOW)])
    assert one.is_well and len(one.refused) == 1


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[str]:
    world, path = World(DENY), tmp_path / "policy.sock"
    task = asyncio.create_task(socket_server.serve(str(path), world.log.answer))
    await until(path.exists)
    await world.take(packet(B, A, UDP, (1, 53)))
    yield str(path)
    await cancel_and_wait(task)


async def test_the_daemons_are_asked_and_one_that_is_not_there_is_no_matter(
    daemon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.policies.sources.sockets", lambda cluster: {"node1": daemon, "node2": ""})
    monkeypatch.setattr("cli.clusters.own_kubeconfig", lambda: "")
    async with Sources(None) as asked:
        answers = await asked.ask()
    (one,) = answers.drops
    assert (one.client.pod, one.server.pod, one.port) == ("a/a2", "a/a1", 53)
    assert "node2" not in answers.silent
