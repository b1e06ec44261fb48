"""The command line of the daemon. Its flags are named as those of the other daemons of a node."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from loadbalancer.plan import pool
from loadbalancer.plan.pool import Pool
from nodelib.daemons.flags import DaemonParser, listen_address, node_name
from nodelib.errors import Invalid

STATE = "/run/nodewright/loadbalancer.json"
_LONGEST_NODE = 240  # characters: its Lease is called after it


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one daemon. `address` and `port` serve /healthz and /metrics; port 0: nowhere."""

    kubeconfig: str
    node: str
    pool: Pool
    interface: str = "eth0"
    state: str = STATE
    address: str = "127.0.0.1"
    port: int = 10245
    verbosity: int = 2


def load_settings(argv: Sequence[str]) -> Settings:
    """Raises Invalid, which names the flag."""
    given = _parser().parse_args(argv)
    if not given.kubeconfig:
        raise Invalid("--kubeconfig is missing", obj="loadbalancer", step="read the command line")
    if not given.pool:
        raise Invalid("--pool is missing", obj="loadbalancer", step="read the command line")
    address, port = listen_address(given.bind_address, "loadbalancer")
    node = node_name(given.hostname_override)
    if not 0 < len(node) <= _LONGEST_NODE:
        raise Invalid(f"a node's name has 1 to {_LONGEST_NODE} characters", obj="--hostname-override")
    return Settings(
        kubeconfig=given.kubeconfig,
        node=node,
        pool=pool.parse(given.pool),
        interface=given.interface,
        state=given.state_file,
        address=address,
        port=port,
        verbosity=given.v,
    )


def _parser() -> argparse.ArgumentParser:
    parser = DaemonParser("loadbalancer", "Gives addresses to Services of type LoadBalancer.")
    add = parser.add_argument
    add("--kubeconfig", default="", help="how to reach the API server")
    add("--pool", action="append", default=[], metavar="RANGES", help="free addresses of the nodes' link, such as "
        "192.0.2.200-192.0.2.250; several are separated by commas, or the flag is repeated")  # fmt: skip
    add("--interface", default="eth0", help="the link where addresses are announced (default: eth0)")
    add("--bind-address", default="127.0.0.1:10245", help="where /healthz and /metrics are served; port 0: nowhere")
    add("--state-file", default=STATE, help="which addresses this node announces, for the next start")
    return parser
