"""`drops` and `policy explain`: what they print of what daemons and the API server answer."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from cli.commands import drops as command
from cli.commands.drops import Printer, show
from cli.commands.policy_explain import explained_lines
from cli.policies import sources
from cli.policies.drops_text import Wanted, refused_by, sentence
from cli.policies.explain_text import document
from cli.policies.follow import follow_node
from cli.policies.objects import Objects
from cli.why.wording import Wording
from nodelib.errors import NotFound, Temporary
from nodelib.json_values import Json
from nodelib.kube.listing import Listed
from nodelib.tasks import cancel_and_wait
from policy.drops.plan.document import End, ReportedDrop, reported_drop, reported_drops
from policy.edge import socket_server
from policy.model import Name
from tests.builders.cluster_policies import BASELINE, cluster_policy, ingress, pods, port, spaces
from tests.builders.packets import UDP, packet
from tests.builders.policies import apps, block, namespaces, pod, policy
from tests.unit.policy.drops.test_log import DENY, A, B, World
from tests.waiting import until


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[tuple[World, str]]:
    """A daemon's own socket, with a drop of TCP and one of DNS."""
    world, path = World(DENY), str(tmp_path / "policy.sock")
    task = asyncio.create_task(socket_server.serve(path, world.log.answer))
    await until(lambda: os.path.exists(path))
    await world.take(packet(B, A, ports=(1, 80)), packet("192.0.2.7", A, UDP, (1, 53)))
    yield world, path
    await cancel_and_wait(task)


async def test_all_drops_are_a_table_and_reasons(daemon: tuple[World, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert await show({"node1": daemon[1]}, Wanted(), False, Wording())
    head, first, second, _, reason = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["LAST", "NODE", "FROM"]
    assert first.split()[1:7] == ["node1", "a/a2", "a/a1", "80/TCP", "ingress", "a/deny"]
    assert second.split()[2:5] == ["192.0.2.7", "a/a1", "53/UDP"]
    assert first.index("a/a1") == second.index("a/a1") == head.index("TO")
    assert reason == "a/deny: it has no ingress rule, so it allows nothing"


async def test_json_for_scripts(daemon: tuple[World, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert not await show({"node1": daemon[1], "node2": ""}, Wanted("a", "a2"), True, Wording())
    found = json.loads(capsys.readouterr().out)
    assert found["silent"] == {"node2": "its policy daemon is not running"}
    (one,) = found["drops"]
    assert (one["node"], one["from"]["pod"], one["to"]["port"], one["count"]) == ("node1", "a/a2", 80, 1)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Wanted(), 2),
        (Wanted("a"), 2),
        (Wanted("b"), 0),
        (Wanted("", "a2"), 1),
        (Wanted("a", "a1"), 2),
        (Wanted("", "a"), 0),
        (Wanted("b", "a1"), 0),
    ],
)
async def test_only_what_was_asked_for(daemon: tuple[World, str], wanted: Wanted, count: int) -> None:
    found = await daemon[0].drops()
    assert sum(map(wanted.fits, found)) == count


async def test_all_pages_are_asked_for(daemon: tuple[World, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy.drops.log.PAGE", 5)
    world, path = daemon
    await world.take(*(packet(B, A, ports=(1, 1000 + port)) for port in range(22)))
    answer, why = await sources.every_drop(path)
    assert answer is not None and not why
    assert [one.port for one in reported_drops(answer)] == [80, 53, *range(1000, 1022)]


async def test_a_node_that_cannot_report_says_why(
    daemon: tuple[World, str], capsys: pytest.CaptureFixture[str]
) -> None:
    world, path = daemon
    world.log._problem = lambda: "the node's kernel cannot report dropped packets"
    assert not await show({"node1": path}, Wanted("no", "such"), False, Wording())
    said = capsys.readouterr()
    assert said.err == "node1: the node's kernel cannot report dropped packets\n"
    assert said.out.startswith("No refused packets are known")


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Wanted("shop"), "known from or to pods of namespace shop."),
        (Wanted("shop", "web"), "known from or to a pod web or web-... of namespace shop."),
        (Wanted("", "shop"), "known from or to a pod shop or shop-... (of a namespace: `./nodewright drops -n shop`)."),
    ],
)
async def test_nothing_found_says_what_was_looked_for(
    daemon: tuple[World, str], capsys: pytest.CaptureFixture[str], wanted: Wanted, says: str
) -> None:
    _, path = daemon
    assert await show({"node1": path}, wanted, False, Wording())
    assert capsys.readouterr().out.startswith(f"No refused packets are {says} The nodes remember")


async def test_follow_prints_what_comes_and_a_flood_of_one_flow_once(
    daemon: tuple[World, str], capsys: pytest.CaptureFixture[str]
) -> None:
    world, path = daemon
    printer = Printer(Wanted("a", "a2"), as_json=False)
    task = asyncio.create_task(follow_node("node1", path, printer))
    shown = ""

    async def lines(count: int) -> list[str]:
        nonlocal shown
        end = asyncio.get_running_loop().time() + 5
        while shown.count("\n") < count and asyncio.get_running_loop().time() < end:
            shown += capsys.readouterr().out
            await asyncio.sleep(0.01)
        return shown.splitlines()

    assert len(await lines(2)) == 2
    for _ in range(20):
        await world.take(packet(B, A, ports=(1, 80)))
        await asyncio.sleep(0)
    await world.take(packet(B, A, ports=(1, 81)))
    found = await lines(3)
    await cancel_and_wait(task)
    assert len(found) == 3 and "81/TCP" in found[2]


async def test_a_daemon_that_starts_again_is_followed_from_its_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policy.drops.log.WAITS", 0.05)  # a killed process would answer nobody
    path = str(tmp_path / "policy.sock")
    printer, shown = Printer(Wanted(), as_json=True), ""
    follower = asyncio.create_task(follow_node("node1", path, printer))
    for number in (1, 2):
        world = World(DENY)
        world.log._began = float(number)
        task = asyncio.create_task(socket_server.serve(path, world.log.answer))
        await world.take(packet(B, A, ports=(1, number)))
        end = asyncio.get_running_loop().time() + 10
        while shown.count("\n") < number and asyncio.get_running_loop().time() < end:
            shown += capsys.readouterr().out
            await asyncio.sleep(0.01)
        await cancel_and_wait(task)
    await cancel_and_wait(follower)
    assert [json.loads(line)["to"]["port"] for line in shown.splitlines()] == [1, 2]


@pytest.mark.parametrize(
    "answer", [{}, {"drops": 1, "number": 1}, {"drops": [1, {}], "number": "x"}, {"drops": [{"from": {}}], "number": 1}]
)
async def test_who_answers_nonsense_is_told_so_or_has_no_drops(tmp_path: Path, answer: Json) -> None:
    async def nonsense(_: Json) -> Json:
        return answer

    path = str(tmp_path / "policy.sock")
    task = asyncio.create_task(socket_server.serve(path, nonsense))
    await until(lambda: os.path.exists(path))
    found, why = await sources.drops(path)
    assert why == "its policy daemon answers with no drops" if found is None else not reported_drops(found)
    await cancel_and_wait(task)


async def test_where_nothing_listens() -> None:
    assert await sources.drops("/nonexistent/sock") == (None, "its policy daemon is not running")


def test_no_daemon_and_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWRIGHT_STATE", str(tmp_path))
    monkeypatch.setattr(command, "need_root", lambda _: None)
    monkeypatch.setattr(sources, "SOCKET", str(tmp_path / "none"))
    with pytest.raises(NotFound, match="no policy daemon runs on this machine"):
        command.run("nodewright", "", namespace="", follow=False, as_json=False)
    with pytest.raises(NotFound, match="no such cluster on this machine"):
        command.run("day1", "", namespace="", follow=False, as_json=False)


def test_a_cluster_that_enforces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = {"name": "lab", "subnet": "10.89.3.0/24", "options": {}, "pod_cidr": "", "service_cidr": "", "domain": ""}
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "cluster.json").write_text(json.dumps(lab))
    monkeypatch.setenv("NODEWRIGHT_STATE", str(tmp_path))
    monkeypatch.setattr(command, "need_root", lambda _: None)
    with pytest.raises(Temporary, match="made with --no-network-policy"):
        command.run("lab", "", namespace="", follow=False, as_json=False)


def test_in_a_sentence_dns_is_called_so() -> None:
    obj: Json = {"number": 1, "first": 1.0, "last": 2.0, "count": 3, "direction": "Egress", "policies": ["a/p"]}
    obj |= {"from": {"address": A, "pod": "a/x"}, "to": {"address": B, "pod": "", "port": 53, "protocol": "UDP"}}
    one: ReportedDrop | None = reported_drop(obj)
    assert one is not None
    assert sentence(one) == f"DNS queries of a/x to {B} port 53/UDP, 3 packets: refused by a/p (egress)"


PODS = (pod("web", A, ports={"http": 80}), pod("db", B), pod("far", "10.0.1.3", namespace="b"))
SPACES = tuple({"metadata": {"name": name, "labels": {"team": team}}} for name, team in (("a", "red"), ("b", "blue")))
RULES: list[Json] = [
    {"from": [apps("db"), namespaces(team="blue")], "ports": [{"port": "http"}]},
    {"from": [block("192.0.2.0/24")]},
]


def objects(*policies: Json) -> Objects:
    return Objects(Listed(PODS), Listed(SPACES), Listed(policies))


def explained(name: str, *policies: Json) -> list[str]:
    known = objects(*policies)
    found = known.pod(Name("a", name))
    assert found is not None
    return explained_lines(known.explained(found), known)


def test_policy_explain_is_a_table_for_each_direction() -> None:
    lines = explained("web", policy("web", select={"app": "web"}, ingress=RULES))
    assert lines[:3] == ["pod a/web", "", "ingress: isolated by a/web. Allowed:"]
    assert [" ".join(line.split()) for line in lines[3:7]] == [
        "PEER NOW PORT POLICY RULE",
        "pods app=db of namespace a a/db the port named http/TCP (http is 80) a/web ingress[0]",
        "every pod of namespaces team=blue b/far the port named http/TCP (http is 80) a/web ingress[0]",
        "192.0.2.0/24 - any port a/web ingress[1]",
    ]
    assert lines[8] == "egress: no NetworkPolicy isolates it, so it may reach anybody."


def test_policy_explain_has_the_tiers_of_cluster_network_policies_around_it() -> None:
    rules = [ingress("Pass", pods("db"), name="known"), ingress("Deny", spaces(team="blue"), protocols=[port(80)])]
    above = [cluster_policy("guard", ingress=rules), cluster_policy("last", BASELINE, ingress=[ingress("Deny")])]
    for own in ((), (policy("web"),)):
        known = Objects(Listed(PODS), Listed(SPACES), Listed(own), Listed(tuple(above)))
        web = known.pod(Name("a", "web"))
        assert web is not None
        lines = [" ".join(line.split()) for line in explained_lines(known.explained(web), known)]
        assert lines[2:6] == [
            "ingress: ClusterNetworkPolicies decide first, in this order (tier Admin):",
            "ACTION PEER NOW PORT POLICY RULE",
            "Pass pods app=db of every namespace a/db any port guard ingress[0] known",
            "Deny every pod of namespaces team=blue b/far 80/TCP guard ingress[1]",
        ]
        baseline = "Deny every pod of every namespace a/db, a/web, b/far any port last ingress[0]"
        assert (baseline in lines) is not bool(own), "it is not asked about an isolated pod"
        found = document(known.explained(web), known)["ingress"]
        assert [one["action"] for one in found["admin"]] == ["Pass", "Deny"]
        assert len(found["baseline"]) == (0 if own else 1)


def test_policy_explain_says_what_was_left_out() -> None:
    lines = explained("web", policy("web", ingress=[{"from": [{"ipBlock": {"cidr": "x"}}]}]))
    assert "ingress: isolated by a/web. No rule allows anything: nobody may reach it." in lines
    assert any("spec.ingress[0].from[0]" in line and "stays closed" in line for line in lines)


def test_policy_explain_for_scripts() -> None:
    known = objects(policy("web", select={"app": "web"}, ingress=RULES))
    web = known.pod(Name("a", "web"))
    assert web is not None
    found = json.loads(json.dumps(document(known.explained(web), known)))
    assert found["egress"] == {"isolated": False, "policies": [], "allowed": [], "admin": [], "baseline": []}
    assert [one["podCount"] for one in found["ingress"]["allowed"]] == [1, 1, None]


_NONSENSE: list[Callable[[], Json]] = [
    lambda: {"metadata": {"namespace": "a", "name": "p"}, "spec": {"podSelector": 1, "ingress": "x"}},
    lambda: {"metadata": 1, "spec": []},
    lambda: policy("p", ingress=[{"from": [{"podSelector": {"matchExpressions": [{"operator": "?"}]}}]}]),
]


@pytest.mark.parametrize("made", _NONSENSE)
def test_policies_of_nonsense_are_survived(made: Callable[[], Json]) -> None:
    assert explained("web", made())


@pytest.mark.parametrize(
    ("denied", "said"),
    [
        (
            "ClusterNetworkPolicy: Admin ingress[0] of no-db for nobody",
            "ClusterNetworkPolicy no-db (Admin tier, ingress[0] for nobody)",
        ),
        ("ClusterNetworkPolicy: Baseline egress[3] of a.b", "ClusterNetworkPolicy a.b (Baseline tier, egress[3])"),
        *[(text, text) for text in ("ClusterNetworkPolicies, as it belongs to no connection", "something else")],
    ],
)
def test_the_rule_of_a_cluster_policy_is_named_in_the_words_of_trace(denied: str, said: str) -> None:
    one = ReportedDrop(1, 1.0, 2.0, 3, "Ingress", End(A), End(B), "TCP", 80, denied=denied)
    assert refused_by(one) == said
