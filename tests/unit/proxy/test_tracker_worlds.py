"""Whatever happened before, rules are those of a proxy that has just been started, and each change says all of it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from nodelib.firewall.objects import Family
from proxy.model import Desired, ServicePort, ServicePortName
from proxy.plan.limits import NO_LESS, Limits
from proxy.plan.tracker import Tracker
from tests.unit.proxy.build import HERE
from tests.unit.proxy.worlds import BOUNDS, IptablesKernel, NftKernel, Objects, context, fresh, tell

# So small that a history reaches each of them.
OF_CHAINS = Limits(ports=4, address_rules=5, pairs=8, pairs_of_service=6, at_once=3)
HISTORIES = 150  # of each family; 20,000 were played when this was written


@pytest.fixture(params=list(Family))
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


def differing(old: Desired, new: Desired) -> set[object]:
    found: set[object] = set()
    for before, now in ((old.ports, new.ports), (old.endpoints, new.endpoints)):
        found |= {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    return found


def sticky(desired: Desired) -> Counter[str]:
    """By namespace, the addresses with session affinity."""
    found: Counter[str] = Counter()
    for name, port in desired.ports.items():
        if port.affinity_seconds:
            found[name.service.namespace] += 1 + port.address_count + 2 * bool(port.node_port)
    return found


def without_affinity(ports: dict[ServicePortName, ServicePort]) -> dict[ServicePortName, ServicePort]:
    return {name: replace(port, affinity_seconds=0) for name, port in ports.items()}


def play(seed: int, family: Family, *, most_sticky: int | None = None, of_chains: bool = False) -> None:
    """`most_sticky`: who has session affinity depends on who came first. `of_chains`: as where rules are in chains."""
    chance = random.Random(seed)
    objects = Objects(chance)
    limits = OF_CHAINS if of_chains else NO_LESS if most_sticky is None else Limits(sticky=most_sticky)
    tracker = Tracker(family, HERE, 0.0, limits)
    nft, iptables = NftKernel(context(family)), IptablesKernel(context(family))
    known = Desired(family)

    def take(some: bool) -> None:
        nonlocal known
        changes = tracker.take(some=some)
        assert differing(known, changes.desired) <= changes.ports
        known = changes.desired
        assert most_sticky is None or max(sticky(known).values(), default=0) <= most_sticky
        nft.sync(known, changes.ports)
        iptables.sync(known, changes.ports)

    take(False)
    often = chance.choice([0.1, 0.3, 0.7])
    for _ in range(chance.randint(5, 60)):
        tell(tracker, objects.event())
        if chance.random() < often:
            take(chance.random() < 0.8)
        if chance.random() < 0.02:
            take(False)
            nft.ctx = iptables.ctx = replace(nft.ctx, zone=chance.choice(["za", "zb", ""]))
            nft, iptables = renewed(nft, iptables, known)
    for _ in range(200):
        if not tracker.pending:
            break
        take(True)
    assert not tracker.pending
    wanted = fresh(objects, family, limits if of_chains else NO_LESS)
    if most_sticky is None:
        assert known.ports == wanted.ports
    assert without_affinity(known.ports) == without_affinity(wanted.ports)
    assert known.endpoints == wanted.endpoints
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
        play(seed, family, most_sticky=6 if bounded and seed % 2 else None)


def test_any_history_ends_so_where_a_mode_has_less_room(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in BOUNDS.items():
        monkeypatch.setattr(f"proxy.plan.{name}", most)
    for seed in range(HISTORIES):
        play(seed, family, of_chains=True)
