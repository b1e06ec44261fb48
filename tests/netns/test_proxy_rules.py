"""The golden rulesets on the real kernel: it accepts them, and lists them chain by chain as they were meant."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from cni.edge.netns import in_namespace
from nodelib import command
from nodelib.command import Completed
from nodelib.firewall.canonical import canonical
from nodelib.firewall.iptables import Iptables, RestoreError
from nodelib.firewall.objects import Chain, Family, Jump, TableChange, comment, jump, rule
from nodelib.firewall.variant import Variant
from nodelib.json_values import Json
from nodelib.netlink import netfilter
from nodelib.nft.edge import NftError, NftTable
from nodelib.nft.wire import Element, plain, verdict
from proxy.backends.context import NodeContext
from proxy.backends.iptables import IptablesBackend
from proxy.backends.nftables import NftablesBackend
from proxy.plan.context import CT_INVALID_COUNTER
from proxy.plan.nftables import layout
from proxy.plan.nftables.ports import Frontend, frontend_key, packed
from tests.builders.services import endpoint_slice, service
from tests.golden.proxy.cases import CASES, Case
from tests.netns.cni_world import ROOT, Namespace
from tests.unit.proxy.build import CONTEXT, desired

pytestmark = pytest.mark.netns


@pytest.fixture
def space() -> Iterator[Namespace]:
    one = Namespace()
    one.run("ip", "link", "set", "lo", "up")
    yield one
    one.close()


def inside(space: Namespace, family: Family, variant: str = "nft") -> Iptables:
    async def run(argv: Any, **more: Any) -> Completed:
        return await command.run(space.argv(*argv), **more)

    return Iptables(family, Variant(variant), run=run)


def nft_inside(space: Namespace, family: Family) -> NftTable[Family]:
    async def run(argv: Any, **more: Any) -> Completed:
        return await command.run(space.argv(*argv), **more)

    def connect() -> socket.socket:
        with open(f"/proc/{space.pid}/ns/net") as file:
            return in_namespace(file.fileno(), netfilter.connect)

    return NftTable(family, layout.TABLE, run=run, connect=connect)


@pytest.mark.parametrize("variant", ["nft", "legacy"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_kernel_has_what_was_meant(case: Case, variant: str, space: Namespace) -> None:
    for counter in case.ctx.counters:
        made = "import sys; from proxy.edge import nfacct; sys.exit(not nfacct.ensure(sys.argv[1]))"
        space.run(sys.executable, "-c", made, counter, cwd=ROOT)
    tables = inside(space, case.ctx.family, variant)
    backend = IptablesBackend(tables, NodeContext(case.ctx))
    world = desired(*case.objects(), family=case.ctx.family, node=case.ctx.node)
    await backend.sync(world, None)
    meant = case.fake().content()
    for table in ("mangle", "filter", "nat"):
        stands = await tables.save(table)
        for name, rules in meant[table].chains.items():
            wanted = [canonical(one, case.ctx.family) for one in rules]
            assert [canonical(one, case.ctx.family) for one in stands.rules(name)] == wanted, f"{table} {name}"
    assert await backend.audit(deep=True) == []
    await backend.cleanup()
    left = (await tables.save("nat")).chains
    assert not [name for name in left if name.startswith("KUBE-")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_kernel_has_the_nftables_table_that_was_meant(case: Case, space: Namespace) -> None:
    table = nft_inside(space, case.ctx.family)
    backend = NftablesBackend(table, NodeContext(case.nft_ctx))
    world = desired(*case.objects(), family=case.ctx.family, node=case.ctx.node)
    for _ in range(2):
        await backend.sync(world, None)
        assert await backend.audit(deep=True) == []
    kind = "ip" if case.ctx.family is Family.IPV4 else "ip6"
    shown = [line.strip() for line in space.run("nft", "list", "table", kind, table.name).stdout.splitlines()]
    meant = [line.strip() for line in case.nft_dump().split("\nelements ")[0].splitlines() if line.startswith("    ")]
    # nft says a time in its own way: "3h" for 10800s.
    assert not [line for line in meant if line not in shown and "timeout" not in line]
    await backend.cleanup()
    assert not await table.exists()


async def test_chains_that_an_earlier_proxy_used_are_removed(space: Namespace) -> None:
    """Rules of some lead to others, and elements to them: the kernel removes a chain only when nothing does."""
    table = nft_inside(space, Family.IPV4)
    endpoints = endpoint_slice("a", ["10.180.0.1", "10.180.0.2"])
    fields: Json = {"externalIPs": ["1.2.3.4"], "externalTrafficPolicy": "Local"}
    first = service("a", "172.30.0.1", sessionAffinity="ClientIP", type="LoadBalancer", lb=["1.2.3.5"], **fields)
    await NftablesBackend(table, NodeContext(CONTEXT)).sync(desired(first, endpoints), None)
    assert {"sticky-pick-2", "remember-10800"} < (await table.digests()).keys()
    backend = NftablesBackend(table, NodeContext(CONTEXT))
    await backend.sync(desired(service("a", "172.30.0.1"), endpoint_slice("a", ["10.180.0.1"])), None)
    assert (await table.digests()).keys() == layout.fixed_chains(CONTEXT).keys() | {"pick-1"}
    assert await backend.audit(deep=True) == []


async def test_the_kernels_refusal_is_an_error_and_changes_nothing(space: Namespace) -> None:
    table = nft_inside(space, Family.IPV4)
    backend = NftablesBackend(table, NodeContext(CONTEXT))
    await backend.sync(desired(service("a", "172.30.0.1"), endpoint_slice("a", ["10.180.0.1"])), None)
    one = Element(layout.SERVICES, verdict(frontend_key(Frontend("172.30.0.9", 80, "TCP")), "nowhere"))
    two = Element(layout.CLUSTER_IPS, plain(packed("172.30.0.9")))
    with pytest.raises(NftError, match="No such file or directory") as caught:
        await table.write([], [two, one])
    assert caught.value.code == errno.ENOENT
    assert caught.value.element == one, "the kernel says which"
    assert await backend.audit(deep=True) == [], "nothing of it is there"


async def test_partial_syncs_and_drift_on_the_kernel(space: Namespace) -> None:
    tables = inside(space, Family.IPV4)
    backend = IptablesBackend(tables, NodeContext(CONTEXT))
    one = [service("a", "172.30.0.1"), endpoint_slice("a", ["10.180.0.1", "10.180.0.2"])]
    before = desired(*one)
    await backend.sync(before, None)
    after = desired(service("a", "172.30.0.1"), endpoint_slice("a", ["10.180.0.2", "10.180.0.3"]))
    await backend.sync(after, frozenset(after.ports))
    assert await backend.audit(deep=True) == []
    saved = space.run("iptables-save", "-t", "nat").stdout
    assert "10.180.0.1" not in saved and "10.180.0.3:80" in saved
    space.run("iptables", "-t", "nat", "-F", "KUBE-SERVICES")
    space.run(
        "iptables", "-D", "FORWARD", "-m", "comment", "--comment", "kubernetes forwarding rules", "-j", "KUBE-FORWARD"
    )
    assert await backend.audit(deep=True) == [
        "the jump from filter FORWARD to KUBE-FORWARD is gone",
        "nat KUBE-SERVICES is not as we wrote it",
    ]
    await backend.sync(after, None)
    assert await backend.audit(deep=True) == []


async def test_two_thousand_chains_in_groups(space: Namespace) -> None:
    objects: list[Json] = []
    for number in range(700):
        objects.append(service(f"s{number}", f"172.30.{number >> 8}.{number & 255}"))
        objects.append(
            endpoint_slice(
                f"s{number}", [f"10.180.{number >> 8}.{number & 255}", f"10.181.{number >> 8}.{number & 255}"]
            )
        )
    backend = IptablesBackend(inside(space, Family.IPV4), NodeContext(CONTEXT))
    world = desired(*objects)
    report = await backend.sync(world, None)
    assert report.rules_total["nat"] == 700 * 8 + 5 + 0
    assert await backend.audit(deep=True) == []
    await backend.sync(world, None)
    assert await backend.audit(deep=True) == []


async def test_the_edge_and_its_errors(space: Namespace) -> None:
    tables = inside(space, Family.IPV4)
    await tables.present()
    hop = Jump("POSTROUTING", rule(comment("ours"), "-s", "10.0.0.0/8", jump("NW-TEST")))
    chain = Chain("NW-TEST", (rule("-d", "10.0.0.0/8", jump("RETURN")),))
    await tables.restore((TableChange("nat", (chain,), add_jumps=(hop,)),))
    assert await tables.has_rule("nat", hop.chain, hop.rule)
    assert canonical((await tables.save("nat")).rules("NW-TEST")[0], Family.IPV4) == (
        "-d",
        "10.0.0.0/8",
        "-j",
        "RETURN",
    )
    with pytest.raises(RestoreError) as caught:
        await tables.restore((TableChange("nat", delete=("NW-TEST",)),))
    assert caught.value.line == "-X NW-TEST"
    with pytest.raises(RestoreError) as caught:
        await tables.restore(
            (
                TableChange(
                    "nat",
                    (Chain("NW-B", (rule("-m", "nfacct", "--nfacct-name", CT_INVALID_COUNTER, jump("ACCEPT")),)),),
                ),
            )
        )
    assert caught.value.line.startswith("-A NW-B") and not await tables.chain_exists("nat", "NW-B")
    await tables.restore((TableChange("nat", remove_jumps=(hop,), delete=("NW-TEST",)),))
    assert not await tables.chain_exists("nat", "NW-TEST")
    assert not await tables.has_rule("nat", hop.chain, hop.rule)
