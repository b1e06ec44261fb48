"""What `doctor` says of Nodes that are not registered, have no podCIDR or are not Ready, and of lost routes."""

from __future__ import annotations

from typing import Any

import pytest

from agent.explain.model import Explanation, Wait
from cli.commands.doctor import troubles
from cli.why import judge
from cli.why.model import Explained, Facts
from controlplane.cluster.model import Cluster, Options
from controlplane.config.model import Member, Taint
from controlplane.doctor.plan.registration import down, missing_routes, pod_ranges, registration
from nodelib.json_values import Json
from tests.builders.pods import pod_json
from tests.builders.services import node

LAB = Cluster(
    "lab",
    "10.89.3.0/24",
    Options(nodes=2, members=(Member("node1", 1), Member("node2", 2, taints=(Taint("mine", "NoSchedule", "x"),)))),
)
READY = [{"type": "Ready", "status": "True"}]
WELL = [node("node1", cidr="10.244.0.0/24", conditions=READY), node("node2", cidr="10.244.1.0/24", conditions=READY)]
ROUTES = [{"dst": "default"}, {"dst": "10.244.0.0/24"}, {"type": "unreachable", "dst": "10.244.0.0/16"}]
TO_OTHER = {"dst": "10.244.1.0/24"}


def with_second(obj: Json) -> list[Json]:
    return [WELL[0], obj]


@pytest.mark.parametrize(
    ("objects", "level", "check", "found", "fix"),
    [
        (WELL, "ok", "lab: nodes", "node1, node2 registered and Ready", ""),
        (WELL[:1], "error", "lab/node2: Node", "it is not registered", "`./nodewright up --name lab`"),
        (
            with_second(node("node2", cidr="", conditions=READY)),
            "error",
            "lab/node2: Node",
            "it has no podCIDR",
            "kube-controller-manager runs",
        ),
        (
            with_second(node("node2", conditions=[{"type": "Ready", "status": "False", "message": "no runtime"}])),
            "error",
            "lab/node2: Node",
            "not Ready: no runtime",
            "agent.log",
        ),
        (
            with_second(
                node(
                    "node2",
                    conditions=READY,
                    taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
                )
            ),
            "warning",
            "lab/node2: Node",
            "cordoned: it takes no new pods",
            "`./nodewright kubectl --name lab uncordon node2`",
        ),
        (
            with_second(
                node("node2", conditions=READY, taints=[{"key": "gpu", "value": "yes", "effect": "NoExecute"}])
            ),
            "warning",
            "lab/node2: Node",
            "tainted gpu",
            "`./nodewright kubectl --name lab taint nodes node2 gpu:NoExecute-`",
        ),
        (
            with_second(
                node("node2", conditions=READY, taints=[{"key": "mine", "value": "x", "effect": "NoSchedule"}])
            ),
            "ok",
            "lab: nodes",
            "node1, node2 registered and Ready",
            "",
        ),
        (None, "error", "lab: API server", "it does not answer: refused", "`./nodewright status --name lab`"),
    ],
    ids=[
        "well",
        "not registered",
        "no podCIDR",
        "not Ready",
        "cordoned",
        "tainted by somebody",
        "tainted as the cluster was described",
        "no API server",
    ],
)
def test_nodes_as_the_api_server_has_them(
    objects: list[Json] | None, level: str, check: str, found: str, fix: str
) -> None:
    (finding,) = registration(LAB, objects, "refused")
    assert (finding.level, finding.check) == (level, check)
    assert found in finding.found and fix in finding.fix


@pytest.mark.parametrize(
    ("routes", "lost"),
    [
        ([*ROUTES, TO_OTHER], False),
        (ROUTES, True),
        ([*ROUTES, {**TO_OTHER, "type": "blackhole"}], True),
        ([{"dst": "default"}], True),
    ],
    ids=["there", "deleted", "a blackhole", "all of them deleted"],
)
def test_a_route_to_the_pods_of_another_node(routes: list[dict[str, Any]], lost: bool) -> None:
    found = missing_routes("lab/node1", "node1", routes, pod_ranges(WELL), "/log/agent.log")
    assert [one.check for one in found] == (["lab/node1: route to node2"] if lost else [])
    for one in found:
        assert one.level == "error" and "no route to 10.244.1.0/24" in one.found and "/log/agent.log" in one.fix


def test_both_families_are_wanted() -> None:
    ranges = {"node2": ("10.244.1.0/24", "fd00:10:244:1::/64")}
    (finding,) = missing_routes("lab/node1", "node1", [TO_OTHER], ranges, "")
    assert "fd00:10:244:1::/64" in finding.found and "10.244.1.0/24" not in finding.found


def test_a_node_that_is_not_running() -> None:
    assert (down(LAB, "node1").level, down(LAB, "node1").fix) == (
        "error",
        "`./nodewright up --name lab` starts it again",
    )


def test_pods_with_a_problem_are_warnings_with_what_to_do() -> None:
    """They are those of `why`; ten are named."""
    pods = [
        pod_json(f"web-{number:02}", meta={"namespace": "ns", "uid": f"u{number}"}, status={"phase": "Pending"})
        for number in range(12)
    ]
    found = troubles(judge.troubles(judge.everything({}, Facts({"pod": tuple(pods)})), ""), "lab")
    assert [one.level for one in found] == ["warning"] * 11
    assert found[0].check == "pod ns/web-00" and found[0].found and found[0].fix
    assert found[-1].found == "2 more have a problem" and "`./nodewright why --name lab`" in found[-1].fix
    (well,) = troubles([], "lab")
    assert well.level == "ok"


def test_a_command_that_mends_is_whole_however_long_it_is() -> None:
    """The patch that lets pods ask for names has 400 bytes and more."""
    command = f"kubectl patch networkpolicy web -n shop --type=json -p '{'x' * 400}'`"
    waits = (Wait("network", "refused", action=f"Do `{command}."),)
    found = Explanation("shop", "web-0", "u1", "node1", "Pending", "waits", waits=waits)
    (one,) = troubles([Explained(found, by_node=True)], "nodewright")
    assert command in one.fix
