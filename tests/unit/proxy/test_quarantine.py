"""What the kernel refuses is set aside; all other ports are served, and it is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from nodelib.errors import NodewrightError
from nodelib.firewall.iptables import RestoreError
from nodelib.firewall.objects import Change, Family
from nodelib.firewall.render import render
from proxy.backends.context import NodeContext
from proxy.backends.iptables import IptablesBackend
from proxy.backends.nftables import NftablesBackend
from proxy.backends.quarantine import Quarantine
from proxy.model import Desired, NamespacedName, ServicePortName
from proxy.plan.iptables.refused import refused_port
from proxy.plan.nftables.ports import Frontend, frontend_key
from tests.builders.services import endpoint_slice, service
from tests.fakes.fake_iptables import FakeIptables
from tests.fakes.fake_nft import FakeNft
from tests.unit.proxy.build import CONTEXT, POD, desired, flow

BAD, GOOD = (ServicePortName(NamespacedName("ns", name), "p80", "TCP") for name in ("bad", "good"))


class Picky(FakeIptables):
    """Refuses every input with `word` in it, naming the line."""

    word = "10.66.6.6"

    async def restore(self, change: Change) -> None:
        line = next((one for one in render(change).splitlines() if self.word and self.word in one), "")
        if line:
            raise RestoreError("exit status 1: no such extension", line=line, family=Family.IPV4)
        await super().restore(change)


def cluster(**more: Any) -> Desired:
    return desired(
        *(service("good", "172.30.0.1"), endpoint_slice("good", ["10.1.0.1"])),
        *(service("bad", "172.30.0.2", **more), endpoint_slice("bad", ["10.66.6.6"])),
    )


@pytest.mark.parametrize("first", [True, False], ids=["at the first sync", "by a change"])
async def test_iptables(first: bool, caplog: pytest.LogCaptureFixture) -> None:
    fake = Picky()
    backend = Quarantine(IptablesBackend(fake, NodeContext(CONTEXT)))
    world = cluster()
    if not first:
        await backend.sync(desired(service("good", "172.30.0.1"), endpoint_slice("good", ["10.1.0.1"])), None)
    await backend.sync(world, None if first else frozenset([BAD]))
    assert flow(fake, POD, "172.30.0.1", 80) == "10.1.0.1:80" and "ns/bad" not in fake.dump()
    await backend.sync(world, frozenset([GOOD]))
    assert "ns/bad" not in fake.dump()
    said = [text for text in caplog.messages if "the kernel refuses its rules" in text]
    assert len(said) == 1 and said[0].startswith("Service ns/bad:p80, TCP: ")
    fake.word = ""
    await backend.sync(world, frozenset([BAD]))
    assert flow(fake, POD, "172.30.0.2", 80) == "10.66.6.6:80"


async def test_nftables() -> None:
    fake = FakeNft()
    fake.refused = {frontend_key(Frontend("172.30.0.2", 80, "TCP"))}
    backend = Quarantine(NftablesBackend(fake, NodeContext(CONTEXT)))
    world = cluster()
    await backend.sync(world, None)
    assert len(fake.sets["service-ips"]) == 1
    fake.refused.clear()
    await backend.sync(world, None)
    assert len(fake.sets["service-ips"]) == 2


async def test_an_error_that_is_nobodys_is_raised() -> None:
    fake = FakeNft()
    backend = Quarantine(NftablesBackend(fake, NodeContext(CONTEXT)))
    fake.fail_next = 1
    with pytest.raises(NodewrightError):
        await backend.sync(cluster(), None)
    await backend.sync(cluster(), frozenset([GOOD]))
    assert len(fake.sets["service-ips"]) == 2


def test_refused_port() -> None:
    world = cluster(type="NodePort", ports=[{"name": "p80", "port": 80, "nodePort": 30000}])
    assert (
        refused_port("-A KUBE-NODEPORTS -m comment --comment ns/bad:p80 -m tcp -p tcp --dport 30000 -j X", world) == BAD
    )
    assert refused_port('-A KUBE-SERVICES -m comment --comment "ns/good:p80 cluster IP" -p tcp -j X', world) == GOOD
    assert refused_port('-A KUBE-SERVICES -m comment --comment "ns/good:p80 cluster IP" -p udp -j X', world) is None
    assert refused_port("-A KUBE-MARK-MASQ -j MARK", world) is None
