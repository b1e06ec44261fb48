"""Marks that spare packets the rules: their generations, and what of a connection's mark is left to others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodelib.firewall.objects import Family
from nodelib.nft.actions import MarkConnection, Verdict
from nodelib.nft.matches import Connection, ConnectionMarked
from policy.enforcer import Enforcer
from policy.model import Name, Policy
from policy.plan import marks, parse
from policy.plan.marks import KNOWN, MASK, next_generation
from policy.plan.program import Planner
from tests.builders.policies import policy
from tests.fakes.clock import FakeClock
from tests.fakes.policies import Silent
from tests.fakes.policy_kernel import FakePolicyTable
from tests.unit.policy.world import PODS, indexed

_KUBE_PROXY = 0x4000 | 0x8000


def values(generation: int) -> tuple[int, int]:
    """The marks of a generation: "judged" and "being judged"."""
    (judged, *_), (under_way, set_judged) = (
        one[0].statements for one in (marks.chains(generation)[KNOWN], marks.chains(generation)[marks.JUDGED])
    )
    assert isinstance(judged, ConnectionMarked) and isinstance(under_way, ConnectionMarked)
    assert set_judged == MarkConnection(judged.mark, MASK)
    return judged.mark, under_way.mark


@given(st.integers(1, (1 << 29) - 1), st.integers(1, (1 << 29) - 1))
def test_generations_have_marks_of_their_own_and_leave_kube_proxy_s_bits(one: int, other: int) -> None:
    found = [*values(one), *(values(other) if one != other else ())]
    assert len(set(found)) == len(found) and 0 not in found
    assert not any(mark & ~MASK for mark in found) and not MASK & _KUBE_PROXY


def test_a_connection_that_begins_with_the_mark_of_another_is_judged() -> None:
    """As conntrack has it for what a helper expects (init_conntrack of nf_conntrack_core.c): it is "related" first."""
    spared, others = marks.chains(7)[KNOWN]
    (state,) = [one for one in spared.statements if isinstance(one, Connection)]
    assert "related" not in state.bit.split(",")
    assert others.statements == (MarkConnection(values(7)[1], MASK),)


@given(st.integers(0, (1 << 29) - 1), st.floats(0, 1e11))
def test_the_next_generation_is_another_one(last: int, now: float) -> None:
    found = next_generation(last, now)
    assert 0 < found < 1 << 29 and found != last


@pytest.mark.parametrize("seconds", [-3600.0, 0.0, 0.001, 1.0, 86400.0 * 40])
def test_generations_do_not_come_again_when_the_clock_moves(seconds: float) -> None:
    now, seen = 1.8e9, {next_generation(0, 1.8e9)}
    last = next(iter(seen))
    for turn in range(1000):
        last = next_generation(last, now + (seconds if turn else 0))
        assert last not in seen
        seen.add(last)


def test_a_daemon_that_starts_again_begins_where_no_mark_is_left() -> None:
    used = {next_generation(0, 1.8e9)}
    for _ in range(10):
        used.add(next_generation(max(used), 1.8e9))
    assert next_generation(0, 1.8e9 + 1) not in used


def test_nothing_is_marked_where_no_pod_is_isolated_or_the_kernel_has_no_marks() -> None:
    for policies, marked in (([], True), ([policy()], False)):
        index = indexed(PODS, policies)
        program, _ = Planner(Family.IPV4, "node1", report=True, marked=marked).plan(index, index.take_changed())
        assert not set(marks.CHAINS) & set(program.chains)
        assert not any("ct mark" in one.text(Family.IPV4) for rules in program.chains.values() for one in rules)


async def test_each_transaction_is_a_generation_and_an_empty_one_is_none() -> None:
    table, planner = FakePolicyTable(), Planner(Family.IPV4, "node1", report=True)
    enforcer = Enforcer({Family.IPV4: table}, {Family.IPV4: planner}, FakeClock(), Silent())
    for obj in PODS:
        pod = parse.pod(obj)
        enforcer.set_pod(pod.name, pod)
    enforcer.set_policy(*_parsed("p"))
    enforcer.start()
    seen = []
    for name in ("p", "p", "q", "r"):
        enforcer.set_policy(*_parsed(name))
        await enforcer.sync()
        assert table.content is not None
        known = table.content.chains[KNOWN]
        program = enforcer.programs[Family.IPV4]
        assert [one.body("nodewright-policy", KNOWN, Family.IPV4) for one in program.chains[KNOWN]] == known
        accepts = program.chains[KNOWN][0]
        assert accepts.statements[-1] == Verdict("accept")
        seen.append(known[0])
    assert len(set(seen)) == 3 and seen[0] == seen[1], "what changes nothing needs no look at the rules"
    assert not await enforcer.audit(deep=True)


def _parsed(name: str) -> tuple[Name, Policy]:
    found, _ = parse.policy(policy(name))
    return found.name, found
