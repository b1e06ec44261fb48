"""The command line of the daemon: names as the node's other daemons have them."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from loadbalancer.plan import pool
from loadbalancer.plan.pool import Pool
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


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Invalid(
            message, obj="loadbalancer", step="read the command line", action="See `python -m loadbalancer --help`."
        )


def load_settings(argv: Sequence[str]) -> Settings:
    """Raises Invalid, which names the flag."""
    given = _parser().parse_args(argv)
    if not given.kubeconfig:
        raise Invalid("--kubeconfig is missing", obj="loadbalancer", step="read the command line")
    if not given.pool:
        raise Invalid("--pool is missing", obj="loadbalancer", step="read the command line")
    host, _, port = given.bind_address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise Invalid(f"--bind-address {given.bind_address} is not ADDRESS:PORT", obj="loadbalancer")
    node = (given.hostname_override or socket.gethostname()).strip().lower()
    if not 0 < len(node) <= _LONGEST_NODE:
        raise Invalid(f"a node's name has 1 to {_LONGEST_NODE} characters", obj="--hostname-override")
    return Settings(
        kubeconfig=given.kubeconfig,
        node=node,
        pool=pool.parse(given.pool),
        interface=given.interface,
        state=given.state_file,
        address=host.strip("[]"),
        port=int(port),
        verbosity=given.v,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="loadbalancer", description="Gives addresses to Services of type LoadBalancer.")
    add = parser.add_argument
    add("--kubeconfig", default="", help="how to reach the API server")
    add("--hostname-override", default="", help="the name of this node's Node object; default: the host's name")
    add("--pool", action="append", default=[], metavar="RANGES", help="free addresses of the nodes' link, such as "
        "192.0.2.200-192.0.2.250; several by commas, or by several flags")  # fmt: skip
    add("--interface", default="eth0", help="the link where addresses are announced (default: eth0)")
    add("--bind-address", default="127.0.0.1:10245", help="where /healthz and /metrics are served; port 0: nowhere")
    add("--state-file", default=STATE, help="which addresses this node announces, for the next start")
    add("-v", "--v", type=int, default=2, help="4 and more: debug messages")
    return parser
