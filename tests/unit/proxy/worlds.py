"""Long random histories of all that Services and EndpointSlices may be, with a kernel's tables beside them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.nft.wire import Element
from proxy.model import Desired, ServicePortName
from proxy.plan.context import Context
from proxy.plan.iptables.sync import AppliedState as IptablesState
from proxy.plan.iptables.sync import Plan, full_stages, next_stage, plan_partial
from proxy.plan.limits import NO_LESS, Limits
from proxy.plan.nftables.ports import Frontend, port_elements
from proxy.plan.nftables.sync import AppliedState, plan
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint, endpoint_slice, service
from tests.fakes.fake_iptables import FakeIptables
from tests.unit.proxy.build import CONTEXT, HERE, plan_full

Key = tuple[str, str]
T = TypeVar("T")
SPACES, NAMES, SLICES = "xy", "abcd", "stuv"
# So small that a history of some dozen events reaches and leaves each of them.
BOUNDS = {
    "turns.MOST_AT_ONCE": 8,
    "turns._FEW": 1,
    "endpoint_shares.MOST_OF_NAMESPACE": 16,
    "port_shares.MOST_OF_NAMESPACE": 6,
    "port_shares.LEAST": 1,
    "port_shares._MOST_BACK": 1,
    "outer.MOST_PAIRS": 8,
    "outer.MOST_OF_NAMESPACE": 10,
    "outer._LEAST": 1,
    "endpoint_shares.MOST_OF_SERVICE": 12,
    "slices.MOST_ENDPOINTS": 3,
}
_STATES: tuple[dict[str, bool], ...] = (
    {},
    {},
    {"ready": False, "serving": True, "terminating": True},
    {"ready": False, "serving": False, "terminating": True},
    {"ready": False, "serving": False},
)


def _some(chance: random.Random, all_: Iterable[T], most: int) -> list[T]:
    listed = list(all_)
    return chance.sample(listed, chance.randint(0, min(most, len(listed))))


class Objects:
    """What the API has, and the events that say so."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.services: dict[Key, Json] = {}
        self.slices: dict[Key, Json] = {}

    def event(self) -> list[tuple[str, Json]]:
        """A change and the events of it: ("service" or "slice", the object), with "gone " before it."""
        kind = self.chance.choices(
            ("service", "slice", "gone service", "gone slice", "namespace", "relist"), (8, 9, 3, 3, 0.4, 0.4)
        )[0]
        space = self.chance.choice(SPACES)
        if kind == "service":
            return [self._service(space, self.chance.choice(NAMES))]
        if kind == "slice":
            return [self._slice(space, self.chance.choice(SLICES))]
        if kind == "relist":
            return self._relisted()
        if kind == "namespace":
            gone = [("service", key) for key in self.services if key[0] == space]
            gone += [("slice", key) for key in self.slices if key[0] == space]
            self.chance.shuffle(gone)
            return [self._gone(*one) for one in gone]
        kind = kind.removeprefix("gone ")
        known = self.services if kind == "service" else self.slices
        return [self._gone(kind, self.chance.choice(sorted(known)))] if known else []

    def _relisted(self) -> list[tuple[str, Json]]:
        """The watch broke, things happened, and the list has the rest: what is gone is told last, and in few words."""
        before = {("service", key) for key in self.services} | {("slice", key) for key in self.slices}
        for _ in range(self.chance.randint(1, 6)):
            self.event()
        known = [("service", one) for one in self.services.values()] + [("slice", one) for one in self.slices.values()]
        self.chance.shuffle(known)
        after = {("service", key) for key in self.services} | {("slice", key) for key in self.slices}
        gone = [
            (f"gone {kind}", {"metadata": {"namespace": key[0], "name": key[1]}})
            for kind, key in sorted(before - after)
        ]
        return known + gone

    def _gone(self, kind: str, key: Key) -> tuple[str, Json]:
        return f"gone {kind}", (self.services if kind == "service" else self.slices).pop(key)

    def _service(self, space: str, name: str) -> tuple[str, Json]:
        pick = self.chance
        kind = pick.choice(["ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"])
        last = pick.choice(self._free(space, name))
        families = pick.choice([["IPv4"], ["IPv4", "IPv6"], ["IPv6", "IPv4"], ["IPv6"]])
        addresses = [f"172.30.0.{last}" if one == "IPv4" else f"fd00::{last}" for one in families]
        ports = [
            {
                "name": f"p{one}",
                "port": (80 if pick.randrange(5) else 180) + one,
                "protocol": pick.choice(["TCP", "TCP", "UDP"]),
                "nodePort": 0 if kind in ("ClusterIP", "ExternalName") else 30000 + last * 10 + one,
            }
            for one in _some(pick, range(1, 5), pick.choice([1, 4, 4]))
        ]
        more: Json = {
            "type": kind,
            "clusterIPs": addresses,
            "ipFamilies": families,
            "externalIPs": self._outer(),
            "externalTrafficPolicy": pick.choice(["Local", "Cluster"]),
            "internalTrafficPolicy": pick.choice(["Local", "Cluster", "Cluster"]),
            "sessionAffinity": pick.choice(["ClientIP", "None", "None"]),
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": pick.choice([10, 20])}},
            "loadBalancerSourceRanges": _some(pick, ["10.1.0.0/16", "192.168.0.0/24", "fd00:1::/64"], 2),
            "healthCheckNodePort": 31000 + last,
        }
        main = pick.choice([*addresses, "None"] if not pick.randrange(6) else addresses[:1])
        lb = self._outer() if kind == "LoadBalancer" else []
        obj = service(name, "" if kind == "ExternalName" else main, namespace=space, ports=ports, lb=lb, **more)
        self.services[space, name] = obj
        return "service", obj

    def _free(self, space: str, name: str) -> list[int]:
        """Cluster IPs that the API server would give: nobody else's."""
        taken = {ip for key, one in self.services.items() if key != (space, name) for ip in one["spec"]["clusterIPs"]}
        return [one for one in range(1, 20) if not {f"172.30.0.{one}", f"fd00::{one}"} & taken][:6]

    def _outer(self) -> list[str]:
        some = [
            "172.30.0.1",
            "172.30.0.3",
            "fd00::2",
            *[f"{net}{one}" for net in ("192.0.2.", "fd00:9::") for one in "1234"],
        ]
        return _some(self.chance, some, self.chance.choice([0, 3, 11]))

    def _slice(self, space: str, name: str) -> tuple[str, Json]:
        pick = self.chance
        family = pick.choice(["IPv4", "IPv4", "IPv6", "FQDN"] if not pick.randrange(4) else ["IPv4", "IPv6"])
        pods = [f"10.1.0.{one}" if family == "IPv4" else f"fd00:1::{one}" for one in range(1, 5)]
        ports = [
            {"name": f"p{one}", "port": pick.choice([8080, 8081]), "protocol": pick.choice(["TCP", "TCP", "UDP"])}
            for one in pick.choices(range(1, 5), k=pick.choice([0, 1, 1, 2, 5]))
        ]
        found = [
            endpoint(
                one,
                pick.choice([HERE, "there", None]),
                zones=_some(pick, ["za", "zb"], pick.choice([0, 2])),
                nodes=_some(pick, [HERE, "there"], pick.choice([0, 0, 2])),
                **pick.choice(_STATES),
            )
            for one in pick.choices(pods, k=pick.choice([0, 1, 2, 4]))
        ]
        obj = endpoint_slice(pick.choice(NAMES), found, namespace=space, ports=ports, address_type=family)
        obj["metadata"]["name"] = name
        if not pick.randrange(8):
            obj["metadata"]["labels"] = {}
        self.slices[space, name] = obj
        return "slice", obj


def tell(tracker: Tracker, events: Iterable[tuple[str, Json]]) -> None:
    for kind, obj in events:
        (tracker.service if kind.endswith("service") else tracker.endpoint_slice)(obj, gone=kind.startswith("gone"))


def fresh(objects: Objects, family: Family, limits: Limits = NO_LESS) -> Desired:
    """What a proxy has that has just been started."""
    one = Tracker(family, HERE, 0.0, limits)
    tell(one, [("service", obj) for obj in objects.services.values()])
    tell(one, [("slice", obj) for obj in objects.slices.values()])
    return one.take().desired


def context(family: Family) -> Context:
    ips = ("192.0.2.3", "192.168.0.10") if family is Family.IPV4 else ("fd00:5::10",)
    return replace(CONTEXT, family=family, node_ip=ips[-1], node_port_ips=ips)


class NftKernel:
    """The elements of our sets as the kernel keeps them, which refuses what is there already, or is not."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.applied = AppliedState()
        self.elements: dict[tuple[str, bytes], Element] = {}

    def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> None:
        before = dict(self.applied.owner)
        delta = plan(desired, changed, self.ctx, self.applied)
        for one in delta.delete:
            assert self.elements.pop((one.set, one.key)) == one
        for one in delta.add:
            assert (one.set, one.key) not in self.elements
            self.elements[one.set, one.key] = one
        self.applied.commit(delta)
        self._check(desired, before)

    def _check(self, desired: Desired, before: dict[Frontend, ServicePortName]) -> None:
        """All of the table is as its ports have it, and whoever had an address keeps it as long as it asks for it."""
        encoded = {
            name: port_elements(port, desired.endpoints.get(name, ()), self.ctx) for name, port in desired.ports.items()
        }
        assert self.applied.ports == encoded
        wanting: dict[Frontend, set[ServicePortName]] = {}
        for name, mine in encoded.items():
            for at in mine.frontends:
                wanting.setdefault(at, set()).add(name)
        assert self.applied.owner.keys() == wanting.keys()
        wanted: set[Element] = set()
        for at, names in wanting.items():
            owner = self.applied.owner[at]
            assert owner in names
            assert self.applied.waiting.get(at, set()) == names - {owner}
            assert before.get(at) not in names or before[at] == owner, f"{before[at]} has lost {at} to {owner}"
            wanted.update(encoded[owner].frontends[at])
        wanted.update(one for mine in encoded.values() for one in mine.shared)
        assert set(self.elements.values()) == wanted


class IptablesKernel:
    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.fake = FakeIptables(ctx.family)
        self.applied: IptablesState | None = None

    def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> None:
        if changed is None or self.applied is None:
            stages = full_stages(desired, self.ctx, self.fake.content())
            while not isinstance(step := next_stage(stages), Plan):
                self.fake.load_change(step)
        else:
            step = plan_partial(desired, changed, self.ctx, self.applied)
            for change in step.changes:
                self.fake.load_change(change)
        self.applied = step.applied

    def check(self, desired: Desired) -> None:
        """The same as a new node has."""
        new = FakeIptables(self.ctx.family)
        for change in plan_full(desired, self.ctx, new.content()).changes:
            new.load_change(change)
        assert self.fake.dump() == new.dump()
