"""Rule for rule: upstream's kube-proxy and ours, each in its own network namespace, with the same API objects.

The sorted rules and chains of both must be equal, in both families, after the first sync and after changes.
Intended differences are listed in `MEANT`, each with its reason.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.binaries.work import ensure
from nodelib.errors import NodewrightError
from nodelib.kube.client import KubeClient
from tests.cluster.service_matrix import AWAY, HERE, ZONE, Case, cases
from tests.netns import api_server
from tests.netns.cni_world import ROOT, Namespace
from tests.waiting import until_sync

pytestmark = pytest.mark.cluster

SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
SAVE = {"IPv4": "iptables-save", "IPv6": "ip6tables-save"}
TABLES = ("mangle", "filter", "nat")
LIMIT = 40.0

# (a line that only one of the two may have, why)
MEANT: tuple[tuple[str, str], ...] = ()


@dataclass
class Proxy:
    """One kube-proxy in its namespace."""

    name: str
    space: Namespace
    process: subprocess.Popen[bytes]
    log: Path

    def rules(self, family: str) -> list[str]:
        """Chains without policies and counters, rules as they stand in the kernel, sorted."""
        found = []
        for table in TABLES:
            text = self.space.run(SAVE[family], "-t", table).stdout
            found += [f"{table} {_shown(line)}" for line in text.splitlines() if line[:1] in (":", "-")]
        return sorted(line for line in found if not any(re.search(pattern, line) for pattern, _ in MEANT))


def _shown(line: str) -> str:
    return line.split(" ")[0] if line.startswith(":") else line


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[api_server.ApiServer]:
    cache = Path(os.environ.get("NODEWRIGHT_CACHE", Path.home() / ".cache" / "nodewright"))
    ensure(["etcd", "kube-apiserver", "kube-proxy"], cache_dir=cache)
    with api_server.running(tmp_path_factory.mktemp("api"), [], service_ranges="10.96.0.0/16,fd00:10:96::/112") as one:
        api_server.run_inside(one.netns, lambda: _create(one, cases()), 120)
        yield one


_UPSTREAM_WATCHES = 'Caches are synced" controller="node config"'


@dataclass(frozen=True)
class Setting:
    """A configuration of both proxies."""

    name: str
    config: dict[str, Any]


SETTINGS = (
    Setting("cluster-cidr", {"clusterCIDR": "10.244.0.0/16,fd00:10:244::/56"}),
    Setting(
        "masquerade-all-chosen-addresses",
        {
            "iptables": {"masqueradeAll": True, "masqueradeBit": 9, "localhostNodePorts": False},
            "nodePortAddresses": ["192.0.2.0/24", "2001:db8:7::/64"],
        },
    ),
    Setting(
        "interface-prefix", {"detectLocalMode": "InterfaceNamePrefix", "detectLocal": {"interfaceNamePrefix": "p"}}
    ),
)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: one.name)
def test_every_rule_is_upstreams(api: api_server.ApiServer, tmp_path: Path, setting: Setting) -> None:
    with ExitStack() as made:
        proxies = [
            _start(made, api, tmp_path, name, number, setting.config)
            for number, name in enumerate(("nodewright", "upstream"))
        ]
        until_sync(lambda: _UPSTREAM_WATCHES in proxies[1].log.read_text(), LIMIT, "upstream's proxy watches its Node")
        api_server.run_inside(api.netns, lambda: _tell_the_zone_again(api), 60)
        _same(*proxies)
        count = sum(len(proxies[0].rules(family)) for family in SAVE)
        assert count > 1000, "the two agree on too little to say anything"
        if setting is SETTINGS[0]:
            api_server.run_inside(api.netns, lambda: _change(api), 60)
            _same(*proxies)


def _same(ours: Proxy, theirs: Proxy) -> None:
    seen: dict[str, str] = {}

    def equal() -> bool:
        for family in SAVE:
            one, other = theirs.rules(family), ours.rules(family)
            seen[family] = "\n".join(difflib.unified_diff(one, other, "upstream", "nodewright", lineterm="", n=0))
        # Two empty rulesets would be equal and prove nothing.
        return not any(seen.values()) and "default/dual:p80" in "\n".join(ours.rules("IPv6"))

    try:
        until_sync(equal, LIMIT, "both proxies have the same rules")
    except AssertionError:
        logs = {proxy.name: proxy.log.read_text()[-1500:] for proxy in (ours, theirs)}
        raise AssertionError(f"{seen['IPv4']}\n{seen['IPv6']}\n{logs}") from None


def _start(
    made: ExitStack, api: api_server.ApiServer, folder: Path, name: str, number: int, config: dict[str, Any]
) -> Proxy:
    space = Namespace()
    made.callback(space.close)
    link = f"nwr{number}"
    near = Path("/run/netns", api.netns)
    space.run("ip", "link", "set", "lo", "up")
    space.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", link, "netns", str(near))
    # A namespace's links go some time after its last process: the next setting adds one of this name.
    made.callback(subprocess.run, ["ip", "-n", api.netns, "link", "delete", link], check=True)
    space.run("ip", "addr", "add", f"10.89.250.{11 + number}/24", "dev", "eth0")
    space.run("ip", "addr", "add", f"fd00:89::{11 + number}/64", "dev", "eth0", "nodad")
    # What both have: eth0 differs, and NodePort rules name the node's own addresses.
    space.run("ip", "addr", "add", "192.0.2.7/32", "dev", "lo")
    space.run("ip", "addr", "add", "2001:db8:7::7/128", "dev", "lo", "nodad")
    space.run("ip", "link", "set", "eth0", "up")
    subprocess.run(["ip", "-n", api.netns, "link", "set", link, "master", "nwn0", "up"], check=True)
    kubeconfig, path = folder / "kubeconfig", folder / f"{name}.yaml"
    kubeconfig.write_text(yaml.safe_dump(_kubeconfig(api)))
    none = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "mode": "iptables",
                "hostnameOverride": HERE,
                "clientConnection": {"kubeconfig": str(kubeconfig)},
                "conntrack": none,
                **config,
            }
        )
    )
    argv = [sys.executable, "-m", "proxy"] if name == "nodewright" else [str(api_server.built("kube-proxy"))]
    log = folder / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(space.argv(*argv, f"--config={path}"), cwd=ROOT, stdout=file, stderr=file)
    made.callback(process.wait)
    made.callback(process.kill)
    return Proxy(name, space, process, log)


async def _tell_the_zone_again(api: api_server.ApiServer) -> None:
    """Upstream's proxy adds its handler of the zone to an informer that runs already, and registers the proxier after.

    A Node that is delivered between the two is never heard of again unless its zone changes, and every hint is ignored
    (NodeTopologyConfig in pkg/proxy/config, 1.37).
    """
    client = KubeClient(api.access("admin"), user_agent="test")
    try:
        for zone in ("for-a-moment", ZONE):
            patch = {"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}
            await client.patch(f"/api/v1/nodes/{HERE}", patch)
    finally:
        await client.close()


def _kubeconfig(api: api_server.ApiServer) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": api.server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": api.tokens["admin"]}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


async def _create(api: api_server.ApiServer, wanted: list[Case]) -> None:
    client = KubeClient(api.access("admin"), user_agent="test")
    try:
        addresses = [{"type": "InternalIP", "address": one} for one in ("10.89.250.11", "fd00:89::11")]
        labels = {"topology.kubernetes.io/zone": ZONE}
        node = {"metadata": {"name": HERE, "labels": labels}, "status": {"addresses": addresses}}
        await client.post("/api/v1/nodes", node)
        await client.post("/api/v1/nodes", {"metadata": {"name": AWAY}})
        for case in wanted:
            status = case.service.pop("status", {})
            try:
                await client.post(SERVICES, case.service)
                if status.get("loadBalancer", {}).get("ingress"):
                    await client.patch(f"{SERVICES}/{case.name}/status", {"status": status})
                for one in case.slices:
                    await client.post(SLICES, one)
            except NodewrightError as error:
                raise AssertionError(f"{case}: {error}") from error
    finally:
        await client.close()


async def _change(api: api_server.ApiServer) -> None:
    """What a partial sync has to do: Services gone and changed, endpoints gone, moved, added."""
    client = KubeClient(api.access("admin"), user_agent="test")
    try:
        for name in ("in-cluster-both", "ranges-local-both", "sticky-loadbalancer", "dns", "six-sticky"):
            await client.delete(f"{SERVICES}/{name}")
        await client.delete(f"{SLICES}/external-ips-cluster-both-1")
        await client.patch(f"{SERVICES}/dual", {"spec": {"externalTrafficPolicy": "Local"}})
        await client.patch(f"{SERVICES}/two-ports", {"spec": {"sessionAffinity": "ClientIP"}})
        await client.patch(f"{SERVICES}/ranges-cluster-both", {"spec": {"loadBalancerSourceRanges": None}})
        for name in ("in-cluster-none", "nodeport-local-cluster-none", "ranges-local-none"):
            fresh = [{"addresses": ["10.244.9.9"], "conditions": {"ready": True}, "nodeName": HERE}]
            await client.patch(f"{SLICES}/{name}-1", {"endpoints": fresh})
        for name in ("in-local-here", "loadbalancer-local-local-both", "sticky-nodeport"):
            await client.patch(f"{SLICES}/{name}-1", {"endpoints": []})
    finally:
        await client.close()
