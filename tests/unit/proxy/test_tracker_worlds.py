"""Whatever happened before, rules are those of a proxy that has just been started, and each change says all of it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from nodelib.firewall.objects import Family
from proxy.model import Desired
from proxy.plan.tracker import Tracker
from tests.unit.proxy.build import HERE
from tests.unit.proxy.worlds import BOUNDS, IptablesKernel, NftKernel, Objects, context, fresh, tell

HISTORIES = 60  # of each family; 20,000 were played when this was written


@pytest.fixture(params=list(Family))
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


def differing(old: Desired, new: Desired) -> set[object]:
    found: set[object] = set()
    for before, now in ((old.ports, new.ports), (old.endpoints, new.endpoints)):
        found |= {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    return found


def play(seed: int, family: Family, *, kernels: bool) -> None:
    chance = random.Random(seed)
    objects = Objects(chance)
    tracker = Tracker(family, HERE, 0.0)
    nft, iptables = NftKernel(context(family)), IptablesKernel(context(family))
    known = Desired(family)

    def take(some: bool) -> None:
        nonlocal known
        changes = tracker.take(some=some)
        assert differing(known, changes.desired) <= changes.ports
        known = changes.desired
        if kernels:
            nft.sync(known, changes.ports)
            iptables.sync(known, changes.ports)

    take(False)
    for _ in range(chance.randint(5, 60)):
        tell(tracker, objects.event())
        if chance.random() < 0.5:
            take(chance.random() < 0.8)
        if kernels and chance.random() < 0.02:
            take(False)
            nft.ctx = iptables.ctx = replace(nft.ctx, zone=chance.choice(["za", "zb", ""]))
            nft, iptables = renewed(nft, iptables, known)
    for _ in range(200):
        if not tracker.pending:
            break
        take(True)
    assert not tracker.pending
    wanted = fresh(objects, family)
    assert known.ports == wanted.ports
    assert known.endpoints == wanted.endpoints
    if kernels:
        iptables.check(known)


def renewed(nft: NftKernel, iptables: IptablesKernel, known: Desired) -> tuple[NftKernel, IptablesKernel]:
    """A full sync: nothing is known of what is there."""
    new = NftKernel(nft.ctx)
    new.sync(known, None)
    iptables.sync(known, None)
    return new, iptables


@pytest.mark.parametrize("bounded", [True, False])
def test_any_history_ends_as_a_new_proxy_begins(family: Family, bounded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in BOUNDS.items() if bounded else ():
        monkeypatch.setattr(f"proxy.plan.{name}", most)
    for seed in range(HISTORIES):
        play(seed, family, kernels=True)
