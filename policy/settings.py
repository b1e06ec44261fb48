"""The command line of the daemon. Its flags are named as those of the other daemons of a node."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from nodelib.addresses import parse_address
from nodelib.daemons.flags import DaemonParser, listen_address, node_name
from nodelib.errors import Invalid
from nodelib.traces import settings as tracing
from nodelib.traces.settings import OFF, TracingSettings, tracing_settings
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
    tracing: TracingSettings = OFF
    verbosity: int = 2
    cleanup: bool = False


def load_settings(argv: Sequence[str]) -> Settings:
    """Raises Invalid, which names the flag."""
    given = _parser().parse_args(argv)
    if not given.kubeconfig and not given.cleanup:
        raise Invalid("--kubeconfig is missing", obj="policy", step="read the command line")
    address, port = listen_address(given.bind_address, "policy")
    return Settings(
        kubeconfig=given.kubeconfig,
        node=node_name(given.hostname_override),
        socket=given.socket,
        state=given.state_file,
        address=address,
        port=port,
        cni_folder=given.cni_conf_dir,
        dns_servers=_addresses(given.cluster_dns),
        tracing=tracing_settings(given.tracing_endpoint, given.tracing_sampling_rate_per_million, "policy"),
        verbosity=given.v,
        cleanup=given.cleanup,
    )


def _addresses(texts: str) -> tuple[Address, ...]:
    try:
        return tuple([parse_address(one.strip()) for one in texts.split(",") if one.strip()])
    except ValueError as error:
        raise Invalid(f"--cluster-dns {texts}: {error}", obj="policy", step="read the command line") from error


def _parser() -> argparse.ArgumentParser:
    parser = DaemonParser("policy", "Enforces NetworkPolicies for the pods of this node.")
    add = parser.add_argument
    add("--kubeconfig", default="", help="how to reach the API server")
    add("--bind-address", default="127.0.0.1:10246", help="where /healthz and /metrics are served; port 0: nowhere")
    add("--socket", default=SOCKET, help="where the pod network asks whether a new pod is protected")
    add("--state-file", default=STATE, help="where addresses of new pods are kept until their status has them")
    add(
        "--cni-conf-dir",
        default="/etc/cni/net.d",
        help="the CNI configurations, which show whether another implementation enforces policies",
    )
    add(
        "--cluster-dns",
        default="",
        help="DNS servers, separated by commas, that rules with domain names believe",
    )
    add(f"--{tracing.ENDPOINT}", default="", help=tracing.HELP[tracing.ENDPOINT])
    add(f"--{tracing.RATE}", type=int, default=0, help=tracing.HELP[tracing.RATE])
    add("--cleanup", action="store_true", help="remove all rules and exit")
    return parser
