"""The command line of the daemon: names as the node's other daemons have them."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from nodelib.addresses import parse_address
from nodelib.errors import Invalid
from policy.model import Address

SOCKET = "/run/nodewright/policy.sock"
STATE = "/run/nodewright/policy.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one daemon. `address` and `port` serve /healthz and /metrics; port 0: nowhere."""

    kubeconfig: str
    node: str
    socket: str = SOCKET
    state: str = STATE
    address: str = "127.0.0.1"
    port: int = 10246
    cni_folder: str = "/etc/cni/net.d"
    dns_servers: tuple[Address, ...] = ()
    verbosity: int = 2
    cleanup: bool = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Invalid(message, obj="policy", step="read the command line", action="See `python -m policy --help`.")


def load_settings(argv: Sequence[str]) -> Settings:
    """Raises Invalid, which names the flag."""
    given = _parser().parse_args(argv)
    if not given.kubeconfig and not given.cleanup:
        raise Invalid("--kubeconfig is missing", obj="policy", step="read the command line")
    host, _, port = given.bind_address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Invalid(f"--bind-address {given.bind_address} is not ADDRESS:PORT", obj="policy")
    return Settings(
        kubeconfig=given.kubeconfig,
        node=(given.hostname_override or socket.gethostname()).strip().lower(),
        socket=given.socket,
        state=given.state_file,
        address=host.strip("[]"),
        port=int(port),
        cni_folder=given.cni_conf_dir,
        dns_servers=_addresses(given.cluster_dns),
        verbosity=given.v,
        cleanup=given.cleanup,
    )


def _addresses(texts: str) -> tuple[Address, ...]:
    try:
        return tuple([parse_address(one.strip()) for one in texts.split(",") if one.strip()])
    except ValueError as error:
        raise Invalid(f"--cluster-dns {texts}: {error}", obj="policy", step="read the command line") from error


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="policy", description="Enforces NetworkPolicies for the pods of this node.")
    add = parser.add_argument
    add("--kubeconfig", default="", help="how to reach the API server")
    add("--hostname-override", default="", help="the name of this node's Node object; default: the host's name")
    add("--bind-address", default="127.0.0.1:10246", help="where /healthz and /metrics are served; port 0: nowhere")
    add("--socket", default=SOCKET, help="where the pod network asks for a new pod's protection")
    add("--state-file", default=STATE, help="addresses that pods have and their status has not yet")
    add("--cni-conf-dir", default="/etc/cni/net.d", help="where another implementation is looked for")
    add("--cluster-dns", default="", help="the DNS servers of pods, by commas: their answers count for domain names")
    add("--cleanup", action="store_true", help="remove all rules and exit")
    add("-v", "--v", type=int, default=2, help="4 and more: debug messages")
    return parser
