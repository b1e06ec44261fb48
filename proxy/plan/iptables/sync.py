"""Plans the iptables-restore transactions that lead from the kernel's rules to the desired ones. Pure.

Upstream's counterpart is syncProxyRules in pkg/proxy/iptables/proxier.go. `AppliedState` is what our own writes have
left in the kernel, so a partial sync reads nothing back: a change of one Service writes that Service's chains, and a
dispatch chain only if its rules differ.

iptables-nft-restore takes quadratic time in the chains of one input, so a large transaction is split: first the chains
of the service ports, in groups, which no dispatch rule refers to yet (after a restart each group is replaced as a
whole), then one atomic input with the dispatch chains, and last the deletion of unused chains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nodelib.firewall.canonical import chain_fingerprint, missing_jumps, present_jumps
from nodelib.firewall.objects import Chain, Change, Family, Rule, TableChange, TableContent
from proxy.model import Desired, ServicePortName
from proxy.plan.context import Context
from proxy.plan.iptables import fixed
from proxy.plan.iptables.names import is_service_chain
from proxy.plan.iptables.ports import DISPATCH, PortRules, Top, port_rules

_CANARY = Chain(fixed.CANARY)
LARGE_CLUSTER_ENDPOINTS = 1000  # as upstream: with more, rules of endpoints have no comments
GROUP_CHAINS = 750  # chains in one input: 250 Services with two endpoints


class ChainDigest(NamedTuple):
    """What is kept of a chain that was written: enough to notice that another one differs."""

    hash: int
    rules: int


@dataclass(frozen=True, slots=True)
class AppliedState:
    """What our writes have left in the kernel: rules of the dispatch chains, and a digest of each port's own chains.

    `large`: the last full sync decided that endpoints' rules have no comments. A partial sync keeps that decision: the
    chains that it does not write were made by it, too.
    """

    ports: Mapping[ServicePortName, PortRules] = field(default_factory=dict)
    chains: Mapping[ServicePortName, Mapping[str, ChainDigest]] = field(default_factory=dict)
    tops: Mapping[Top, tuple[Rule, ...]] = field(default_factory=dict)
    rules: int = 0  # in `chains`
    large: bool = False

    def size(self, names: Collection[ServicePortName]) -> int:
        """How many rules these ports have."""
        known = [port for name in names if (port := self.ports.get(name)) is not None]
        own = sum(one.rules for name in names for one in self.chains.get(name, {}).values())
        return own + sum(len(rules) for port in known for rules in port.dispatch.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """Transactions in their order, the state after them, and rule counts by table for the metrics."""

    changes: tuple[Change, ...]
    applied: AppliedState
    rules_total: Mapping[str, int]
    rules_written: Mapping[str, int]


def _all_at_once(stages: Generator[Change, None, Plan]) -> Plan:
    changes: list[Change] = []
    while True:
        step = next_stage(stages)
        if isinstance(step, Plan):
            return replace(step, changes=tuple(changes))
        changes.append(step)


def full_stages(desired: Desired, ctx: Context, kernel: Mapping[str, TableContent]) -> Generator[Change, None, Plan]:
    """The transactions of a full sync one by one, so that one is written while the next is planned.

    `kernel` has the tables mangle, filter and nat as read just now. Chains that are right already are not written, so
    a restart writes next to nothing. The returned plan has no changes of its own.
    """
    large = desired.endpoint_count > LARGE_CLUSTER_ENDPOINTS
    return _stages(desired, replace(ctx, large=large), kernel)


def _stages(desired: Desired, ctx: Context, kernel: Mapping[str, TableContent]) -> Generator[Change, None, Plan]:
    written: Counter[str] = Counter()
    ports: dict[ServicePortName, PortRules] = {}
    digests: dict[ServicePortName, Mapping[str, ChainDigest]] = {}
    pending: list[Chain] = []
    split = False
    for name, port in desired.ports.items():
        rules = port_rules(port, desired.endpoints.get(name, ()), ctx)
        missing = _missing(rules.chains, kernel["nat"], ctx)
        if pending and len(pending) + len(missing) > GROUP_CHAINS:
            # The chain that all of them jump to goes first.
            yield _counted(_group(pending, ctx, first=not split), written)
            pending, split = [], True
        pending.extend(missing)
        # Only names and digests of the chains are kept; the dispatch rules are needed again.
        ports[name], digests[name] = replace(rules, chains=()), _digests(rules.chains)
    if pending and (split or len(pending) > GROUP_CHAINS):
        yield _counted(_group(pending, ctx, first=not split), written)
        pending = []
    tops = _fill_all(ports, ctx)
    wanted = {chain for chains in digests.values() for chain in chains}
    stale = [name for name in kernel["nat"].chains if is_service_chain(name) and name not in wanted]
    for change in _transactions([tuple(pending)] if pending else [], _final(tops, kernel, ctx), stale):
        yield _counted(change, written)
    return _finished(written, AppliedState(ports, digests, tops, sum(map(_rules, digests.values())), ctx.large))


def next_stage(stages: Generator[Change, None, Plan]) -> Change | Plan:
    """The next transaction, or after the last one the plan."""
    try:
        return next(stages)
    except StopIteration as end:
        plan: Plan = end.value
        return plan


def _group(chains: Iterable[Chain], ctx: Context, *, first: bool) -> Change:
    mark = (Chain(fixed.MARK_MASQ[1], fixed.fill(fixed.MARK_MASQ, {}, (), ctx)),) if first else ()
    return (TableChange("nat", (*mark, *chains)),)


def _final(tops: Mapping[Top, tuple[Rule, ...]], kernel: Mapping[str, TableContent], ctx: Context) -> Change:
    """The dispatch chains and the jumps to them, as far as the kernel does not have them."""
    missing = {
        table: missing_jumps(kernel[table], (*fixed.jumps(table), *fixed.kubelet_jumps(table)), ctx.family)
        for table in ("filter", "nat")
    }
    # The jumps to KUBE-FIREWALL need the chain even where we put nothing into it.
    extra = () if fixed.FIREWALL in tops or kernel["filter"].has(fixed.FIREWALL[1]) else (Chain(fixed.FIREWALL[1]),)
    return (
        TableChange("mangle", _missing((_CANARY,), kernel["mangle"], ctx)),
        TableChange(
            "filter",
            _missing((_CANARY, *extra, *_top_chains("filter", tops, tops)), kernel["filter"], ctx),
            add_jumps=missing["filter"],
        ),
        TableChange(
            "nat",
            _missing((_CANARY, *_top_chains("nat", tops, tops)), kernel["nat"], ctx),
            add_jumps=missing["nat"],
        ),
    )


def plan_partial(desired: Desired, changed: Collection[ServicePortName], ctx: Context, applied: AppliedState) -> Plan:
    """A partial sync: what differs for the ports in `changed`. All others stay as they are."""
    ctx = replace(ctx, large=applied.large)
    fresh = _plan_ports(desired, [name for name in changed if name in desired.ports], ctx)
    ports, chains = dict(applied.ports), dict(applied.chains)
    groups: list[tuple[Chain, ...]] = []
    stale: list[str] = []
    touched: set[Top] = set()
    rules = applied.rules
    for name in changed:
        old, new = applied.ports.get(name), fresh.get(name)
        touched.update(_differing(old, new))
        before = chains.pop(name, {})
        ports.pop(name, None)
        digests = _digests(new.chains) if new else {}
        if new:
            ports[name], chains[name] = new, digests
            groups.append(tuple([chain for chain in new.chains if before.get(chain.name) != digests[chain.name]]))
        stale.extend([chain for chain in before if chain not in digests])
        rules += _rules(digests) - _rules(before)
    order = sorted(ports) if touched else []
    tops = {**applied.tops, **{top: fixed.fill(top, ports, order, ctx) for top in touched}}
    final = (
        TableChange("filter", _top_chains("filter", touched, tops)),
        TableChange("nat", _top_chains("nat", touched, tops)),
    )
    changes = _transactions([group for group in groups if group], final, stale)
    written: Counter[str] = Counter()
    for change in changes:
        _counted(change, written)
    ports.update(_slim(fresh))
    return replace(_finished(written, AppliedState(ports, chains, tops, rules, applied.large)), changes=changes)


def plan_guard(filters: TableContent, ctx: Context) -> Change:
    """KUBE-FIREWALL and the jumps to it, as far as the table filter in `filters` does not have them."""
    chain = Chain(fixed.FIREWALL[1], fixed.fill(fixed.FIREWALL, {}, (), ctx))
    leads = missing_jumps(filters, fixed.kubelet_jumps("filter"), ctx.family)
    return (TableChange("filter", _missing((chain,), filters, ctx), add_jumps=leads),)


def plan_cleanup(kernel: Mapping[str, TableContent], family: Family) -> Change:
    """Remove all our chains and jumps except KUBE-FIREWALL, which the kubelet uses too."""
    tops = {(table, fixed.CANARY) for table in fixed.TABLES} | set(fixed.top_chains(Context())) - {fixed.FIREWALL}
    changes = []
    for table in fixed.TABLES:
        ours = [
            name
            for name in kernel[table].chains
            if (table, name) in tops or (table == "nat" and is_service_chain(name))
        ]
        jumps = present_jumps(kernel[table], fixed.jumps(table), family)
        changes.append(TableChange(table, remove_jumps=jumps, delete=tuple(ours)))
    return tuple(changes)


def drift(desired: Desired, ctx: Context, kernel: Mapping[str, TableContent], *, large: bool) -> list[str]:
    """What somebody else changed, one sentence each. `kernel` as for full_stages, `large` as in the applied state."""
    found = []
    for change in _all_at_once(_stages(desired, replace(ctx, large=large), kernel)).changes:
        for one in change:
            for chain in one.chains:
                there = kernel[one.table].has(chain.name)
                # The kubelet writes KUBE-FIREWALL too: two programs that correct each other would never stop.
                if not there or (one.table, chain.name) != fixed.FIREWALL:
                    found.append(f"{one.table} {chain.name} is {'not as we wrote it' if there else 'gone'}")
            found += [f"the jump from {one.table} {gone.chain} to {gone.rule.target} is gone" for gone in one.add_jumps]
            found += [f"{one.table} {name} belongs to no Service" for name in one.delete]
    return found


def _plan_ports(desired: Desired, names: Iterable[ServicePortName], ctx: Context) -> dict[ServicePortName, PortRules]:
    return {name: port_rules(desired.ports[name], desired.endpoints.get(name, ()), ctx) for name in names}


def _fill_all(ports: Mapping[ServicePortName, PortRules], ctx: Context) -> dict[Top, tuple[Rule, ...]]:
    order = sorted(ports)
    return {top: fixed.fill(top, ports, order, ctx) for top in fixed.top_chains(ctx)}


def _transactions(groups: list[tuple[Chain, ...]], final: Change, stale: list[str]) -> tuple[Change, ...]:
    """One atomic input if it is small, else groups of chains, then the dispatch, then the deletions."""
    count = sum(len(group) for group in groups)
    before: list[tuple[Chain, ...]] = []
    after: list[list[str]] = []
    if count > GROUP_CHAINS:
        before, groups = _packed(groups), []
    if len(stale) > GROUP_CHAINS:
        after = [stale[start : start + GROUP_CHAINS] for start in range(0, len(stale), GROUP_CHAINS)]
        stale = []
    flat = tuple([chain for group in groups for chain in group])
    *others, nat = final
    middle = (*others, replace(nat, chains=(*nat.chains, *flat), delete=tuple(stale)))
    changes: list[Change] = [(TableChange("nat", group),) for group in before]
    if any(middle):
        changes.append(middle)
    changes.extend([(TableChange("nat", delete=tuple(names)),) for names in after])
    return tuple(changes)


def _packed(groups: list[tuple[Chain, ...]]) -> list[tuple[Chain, ...]]:
    """Groups of about GROUP_CHAINS chains; the chains of one port stay together."""
    packed: list[tuple[Chain, ...]] = []
    current: list[Chain] = []
    for group in groups:
        if current and len(current) + len(group) > GROUP_CHAINS:
            packed.append(tuple(current))
            current = []
        current.extend(group)
    if current:
        packed.append(tuple(current))
    return packed


def _top_chains(table: str, which: Collection[Top], tops: Mapping[Top, tuple[Rule, ...]]) -> tuple[Chain, ...]:
    return tuple([Chain(top[1], tops[top]) for top in tops if top in which and top[0] == table])


def _differing(old: PortRules | None, new: PortRules | None) -> list[Top]:
    none: Mapping[Top, tuple[Rule, ...]] = {}
    before, after = old.dispatch if old else none, new.dispatch if new else none
    return [top for top in DISPATCH if before.get(top, ()) != after.get(top, ())]


def _missing(chains: tuple[Chain, ...], content: TableContent, ctx: Context) -> tuple[Chain, ...]:
    """Those of `chains` that the kernel does not have exactly like this."""
    return tuple(
        [
            chain
            for chain in chains
            if not content.has(chain.name)
            or content.fingerprints.get(chain.name, 0) != chain_fingerprint(chain.rules, ctx.family)
        ]
    )


def _digests(chains: Iterable[Chain]) -> dict[str, ChainDigest]:
    return {chain.name: ChainDigest(hash(chain), len(chain.rules)) for chain in chains}


def _rules(digests: Mapping[str, ChainDigest]) -> int:
    return sum([digest.rules for digest in digests.values()])


def _slim(ports: Mapping[ServicePortName, PortRules]) -> dict[ServicePortName, PortRules]:
    """Without their chains: only names and digests of these are kept; the dispatch rules are needed again."""
    return {name: replace(rules, chains=()) for name, rules in ports.items()}


def _counted(change: Change, written: Counter[str]) -> Change:
    """`change` itself, after adding its rules to `written`."""
    for table in change:
        written[table.table] += table.rule_count
    return change


def _finished(written: Mapping[str, int], applied: AppliedState) -> Plan:
    total = {"filter": 0, "nat": 0}
    for (table_name, _), rules in applied.tops.items():
        total[table_name] += len(rules)
    total["nat"] += applied.rules
    return Plan((), applied, total, {table: written.get(table, 0) for table in total})
