"""What is set and looked up on the machine: sysctls, counters, addresses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nodelib.errors import Temporary
from nodelib.firewall.objects import Family
from proxy import derive
from proxy.edge import addresses, nfacct, sysctl
from proxy.model import NodeFacts
from proxy.plan.context import CT_INVALID_COUNTER, LOCALHOST_COUNTER, Context
from proxy.plan.listen import node_port_ips
from proxy.settings import Settings

log = logging.getLogger(__name__)


def refiner(settings: Settings, family: Family) -> Callable[[Context, NodeFacts], Context]:
    """For each full sync: counters, sysctls and addresses as they are then. Blocking."""

    def refine(ctx: Context, node: NodeFacts) -> Context:
        chosen = None
        cidrs = derive.node_port_networks(settings, family, node.ips)
        if cidrs is not None:
            localhost = ctx.localhost_node_ports
            chosen = node_port_ips(cidrs, addresses.local_addresses(), family, localhost=localhost)
        counters = [name for name in (CT_INVALID_COUNTER, LOCALHOST_COUNTER) if nfacct.ensure(name)]
        return replace(
            ctx,
            node_port_ips=chosen,
            counters=frozenset(counters),
            tcp_liberal=bool(sysctl.read_int(derive.TCP_LIBERAL)),
        )

    return refine


def set_sysctls(settings: Settings) -> None:
    """route_localnet and conntrack's limits. What cannot be set is one line each: the rules work without."""
    for name, value in derive.sysctls(settings, sysctl.cpu_count()).items():
        try:
            if sysctl.ensure(name, value):
                log.info("sysctl %s = %d", name, value)
        except Temporary as error:
            log.warning("%s", error)


def set_oom_score(value: int) -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(str(value))
    except OSError as error:
        log.warning(
            "oomScoreAdj %d cannot be set (%s): the proxy keeps the one it was started with", value, error.strerror
        )
