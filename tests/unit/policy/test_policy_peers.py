"""What the benchmark of policies writes for all makers, and the table that it prints."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from policy.plan import parse
from tests.bench.policy_peers import objects, table
from tests.bench.policy_peers.measure import Found, of_namespace
from tests.bench.policy_peers.table import Line


@pytest.mark.parametrize(
    ("stored", "policies", "pods"),
    [
        (lambda: objects.spread(100, 50), 100, 51),
        (lambda: objects.on_one(0), 0, 2),
        (lambda: objects.on_one(10), 10, 2),
    ],
    ids=["spread", "none", "on one pod"],
)
def test_the_daemon_understands_all_of_it(stored: Callable[[], objects.Stored], policies: int, pods: int) -> None:
    found = dict(stored())
    read = [parse.policy(one) for key, one in found.items() if key.startswith("/registry/networkpolicies/")]
    assert [problems for _, problems in read if problems] == []
    assert len(read) == policies
    there = [parse.pod(one) for key, one in found.items() if key.startswith("/registry/pods/")]
    assert len({address for pod in there for address in pod.addresses}) == pods
    assert {pod.node for pod in there} == {objects.NODE}
    assert len({one["metadata"]["uid"] for one in found.values()}) == len(found)


def test_a_role_is_let_in_by_namespaces_with_its_number_only() -> None:
    found = dict(objects.spread(100, 250))
    for key, one in found.items():
        if key.startswith("/registry/networkpolicies/n"):
            number = int(key.split("/")[3][1:])
            roles = [peer["podSelector"]["matchLabels"] for peer in one["spec"]["ingress"][0]["from"][3:]]
            assert roles == [{"role": f"r{number % objects.ROLES}"}]
    pod = found["/registry/pods/n7/p35"]
    assert pod["status"]["podIP"] == of_namespace(7)[0]


def test_the_table_compares_with_ours() -> None:
    ours, peer = Found({"enforced": 0.5}), Found({"enforced": 2.0})
    ours.many["policy allows"] += [0.01, 0.02, 0.03]
    ours.many["second, 10"] += [4e-10, 2e-10]
    shown = table.markdown({"nodewright": ours, "other": peer}, [10])
    assert "| start of the process to enforced | 0.5 s | 2 s (0.25x) |" in shown
    assert "| policy changed: what it allows now passes, p50 | 20 ms | - |" in shown
    assert "| TCP stream, 10 policies on the pod | 40 Gbit/s | - |" in shown
    assert "RSS" not in shown, "what nobody has measured is no row"


def test_a_rate_is_the_inverse_of_the_least_time() -> None:
    found = Found()
    found.many["request, 0"] += [2e-5, 1e-5]
    assert table.value(Line("", "request, 0", "thousand/s", 1e-3, -1.0, inverted=True), found) == pytest.approx(100)
