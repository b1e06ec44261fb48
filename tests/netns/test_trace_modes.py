"""`trace` finds the same in the kernel's nftables rules as in the iptables rules for the same Services."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.machine.edge import rules
from nodelib.command import CommandError
from nodelib.firewall.trace import Packet, trace
from nodelib.firewall.trace_nft import bases
from tests.golden.proxy.cases import CASES, Case
from tests.netns.cni_world import ROOT
from tests.unit.proxy.build import BLOCKED_CLIENT, CLIENT, NODE, NODE_IP, POD

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")]

Ends = set[tuple[str, str, bool]]
_FOREIGN = "iptables -t nat -A OUTPUT -j ACCEPT; nft add rule ip nat OUTPUT ip daddr vmap '{ 1.1.1.1 : accept }'"
_FOREIGN += "; nft add rule ip nat OUTPUT meta l4proto tcp dnat to 1.1.1.1:80-90"


@contextlib.contextmanager
def namespace(commands: str) -> Iterator[str]:
    """The path of a network namespace in which a shell has run these commands."""
    argv = ["unshare", "--net", "sh", "-c", f"{commands}; echo; exec sleep 60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield f"/proc/{process.pid}/ns/net"
        finally:
            process.kill()


def kernel(case: Case) -> dict[str, Any]:
    argv = ["unshare", "--net", sys.executable, "-m", "tests.netns.nft_ruleset", case.name]
    done = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def doors(case: Case) -> list[tuple[str, int, str]]:
    """Every address and port at which a Service of the case is to be reached."""
    found: list[tuple[str, int, str]] = []
    for obj in case.objects():
        spec = obj.get("spec")
        if not spec or spec["clusterIP"] == "None":
            continue
        ingress = [one["ip"] for one in obj["status"]["loadBalancer"]["ingress"] if one.get("ipMode") != "Proxy"]
        for port in spec["ports"]:
            protocol = port.get("protocol", "TCP").lower()
            addresses = [spec["clusterIP"], *spec.get("externalIPs", []), *ingress]
            found += [(address, port["port"], protocol) for address in addresses]
            if port.get("nodePort"):
                found.append((NODE_IP, port["nodePort"], protocol))
    return found


@pytest.mark.parametrize(
    "case", [one for one in CASES if one.name in ("basic", "external", "policies")], ids=lambda one: one.name
)
def test_both_modes_lead_every_packet_to_the_same_end(case: Case) -> None:
    nft = bases(kernel(case), "ip")
    tables = case.fake().content()
    checked = 0
    for address, port, protocol in doors(case):
        for source, interface in ((POD, "eth0"), (CLIENT, "eth0"), (BLOCKED_CLIENT, "eth0"), (NODE_IP, "")):
            packet = Packet(source, address, port, protocol, interface)
            in_iptables, in_nftables = ends(trace(tables, packet, NODE)), ends(trace({}, packet, NODE, more=nft))
            checked += 1
            # As upstream: iptables mode does not look at what the node itself sends to an external address that
            # nobody serves (KUBE-EXTERNAL-SERVICES hangs on INPUT and FORWARD), nftables mode refuses it.
            unserved = not interface and all(one.verdict != "ACCEPT" for one in trace({}, packet, NODE, more=nft))
            assert in_nftables == in_iptables or (unserved and in_iptables == {passes_by(address, port)}), packet
    assert checked >= 20


def passes_by(address: str, port: int) -> tuple[str, str, bool]:
    return ("ACCEPT", f"{address}:{port}", False)


def ends(outcomes: Any) -> Ends:
    """A refused packet goes nowhere, wherever it was about to go."""
    return {
        (one.verdict, one.to if one.verdict == "ACCEPT" else "", one.masqueraded and one.verdict == "ACCEPT")
        for one in outcomes
    }


async def test_rules_that_cannot_be_read_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were taken for no rules, so `trace` said that nothing translates a Service's address."""
    tool = tmp_path / "iptables-nft-save"
    tool.write_text("#!/bin/sh\necho 'RULE_LIST failed: Resource temporarily unavailable' >&2\nexit 4\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(CommandError, match="Resource temporarily unavailable"):
        await rules.read("node1", "/proc/self/ns/net")


async def test_a_table_that_iptables_cannot_show_is_noted() -> None:
    with namespace(_FOREIGN) as net:
        found = await rules.read("node1", net)
    assert "nat" not in found.tables and "Table `nat' is incompatible" in found.notes[0]


_MANY = "; ".join(
    (
        "for number in $(seq 4000); do echo :KUBE-SEP-$number -; done | "
        "{ echo '*nat'; cat; echo '-A OUTPUT -d 10.96.0.9 -j ACCEPT'; echo COMMIT; } | iptables-nft-restore",
        "nft add table inet own",
        "nft add chain inet own first '{ type filter hook output priority 0; }'",
        "nft add table ip kube-proxy",
        "nft add table ip6 kube-proxy",
        "nft add set ip kube-proxy ips '{ type ipv4_addr; }'",
        "nft add element ip kube-proxy ips '{ 10.96.0.9 }'",
    )
)


async def test_the_tables_of_iptables_are_read_once() -> None:
    """nft listed them, too: 300 ports of a Service with 32 endpoints and 30 external addresses took it 2.5 s, 276 MB
    and 12 MB of JSON, which nobody looked at."""
    with namespace(_MANY) as net:
        found = [await rules.read("node1", net, version) for version in (4, 6)]
    assert len(found[0].tables["nat"].chains) > 4000
    listed = [[next(iter(item.items())) for item in one.nftables["nftables"]] for one in found]
    names = [{(obj["family"], obj["name"]) for kind, obj in one if kind == "table"} for one in listed]
    assert names == [{("inet", "own"), ("ip", "kube-proxy")}, {("inet", "own"), ("ip6", "kube-proxy")}]
    assert [len([obj for kind, obj in one if kind == "chain"]) for one in listed] == [1, 1]
    assert [obj["elem"] for kind, obj in listed[0] if kind == "set"] == [["10.96.0.9"]]


async def test_a_table_whose_name_would_be_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """nft joins its arguments to one line: such a name would have changed the rules that somebody only looks at."""
    hostile = [("inet", "own; delete table inet own"), ("inet", "--help")]
    monkeypatch.setattr(rules, "tables", lambda: [*hostile, ("inet", "own")])
    with namespace(_MANY) as net:
        found = await rules.read("node1", net)
    named = [obj["name"] for item in found.nftables["nftables"] for kind, obj in item.items() if kind == "table"]
    assert named == ["own"] and "tables that are not followed: 2" in found.notes[0]


async def test_rules_that_take_too_long_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "iptables-nft-save"
    tool.write_text("#!/bin/sh\nsleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(rules, "_OF_RULES", 0.5)
    with pytest.raises(CommandError, match=r"the rules of node1: .*not finished after 0.5 s.*Services with very many"):
        await rules.read("node1", "/proc/self/ns/net")
