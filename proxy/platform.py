"""The machine: sysctls and OOM score set at the start, addresses and counters read for each full sync.

Upstream: platformSetup in cmd/kube-proxy/app/server_linux.go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nodelib.errors import Temporary
from nodelib.firewall.objects import Family
from proxy.config import derive
from proxy.config.settings import Settings
from proxy.edge import local_addresses, nfacct, sysctl
from proxy.model import NodeFacts
from proxy.plan.context import CT_INVALID_COUNTER, LOCALHOST_COUNTER, Context
from proxy.plan.node_port_addresses import node_port_ips

log = logging.getLogger(__name__)


def context_reader(settings: Settings, family: Family) -> Callable[[Context, NodeFacts], Context]:
    """A function that puts counters, sysctls and addresses, as they are now, into a context. It blocks."""

    def read(ctx: Context, node: NodeFacts) -> Context:
        chosen = None
        cidrs = derive.node_port_networks(settings, family, node.ips)
        if cidrs is not None:
            localhost = ctx.localhost_node_ports
            chosen = node_port_ips(cidrs, local_addresses.local_addresses(), family, localhost=localhost)
        counters = [name for name in (CT_INVALID_COUNTER, LOCALHOST_COUNTER) if nfacct.ensure(name)]
        return replace(
            ctx,
            node_port_ips=chosen,
            counters=frozenset(counters),
            tcp_liberal=bool(sysctl.read_int(derive.TCP_LIBERAL)),
        )

    return read


def set_sysctls(settings: Settings) -> None:
    """Set conntrack's limits. One that cannot be set is logged: the rules work without it."""
    for name, value in derive.sysctls(settings, sysctl.cpu_count()).items():
        _ensure(name, value)


def allow_localnet() -> None:
    """Let 127.0.0.1:nodePort reach a Service. Call it only once the chain KUBE-FIREWALL guards the loopback.

    Without that, every service on this node's 127.0.0.1 can be reached from its network (CVE-2020-8558). Upstream sets
    it when the proxy starts, and relies on the kubelet's chain.
    """
    _ensure(derive.ROUTE_LOCALNET, 1)


def _ensure(name: str, value: int) -> None:
    try:
        if sysctl.ensure(name, value):
            log.info("sysctl %s = %d", name, value)
    except Temporary as error:
        log.warning("%s", error)


def set_oom_score(value: int) -> None:
    """Set this process's oom_score_adj, -1000 to 1000. A refusal is logged."""
    try:
        Path("/proc/self/oom_score_adj").write_text(str(value))
    except OSError as error:
        log.warning(
            "oomScoreAdj %d cannot be set (%s): the proxy keeps the one it was started with", value, error.strerror
        )
