"""The command line of the driver."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from csi.model import DRIVER
from nodelib.daemons.flags import DaemonParser, node_name
from nodelib.errors import Invalid

KUBELET = "/var/lib/kubelet"
SOCKET = f"{KUBELET}/plugins/{DRIVER}/csi.sock"
REGISTRY = f"{KUBELET}/plugins_registry"
ROOT = f"{KUBELET}/plugins/{DRIVER}/storage"
RESERVE = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one driver. `reserve`: the share of the file system that no volume gets. `registry` "": none."""

    node: str
    socket: str = SOCKET
    registry: str = REGISTRY
    root: str = ROOT
    reserve: float = RESERVE / 100
    verbosity: int = 2


def load_settings(argv: Sequence[str]) -> Settings:
    """Raises Invalid, which names the flag."""
    given = _parser().parse_args(argv)
    for flag in ("endpoint", "root"):
        if not getattr(given, flag).startswith("/"):
            raise Invalid(f"--{flag} {getattr(given, flag)} is not an absolute path", obj="csi")
    if not 0 <= given.reserve_percent < 100:
        raise Invalid(f"--reserve-percent {given.reserve_percent} is not between 0 and 99", obj="csi")
    return Settings(
        node=node_name(given.hostname_override),
        socket=given.endpoint,
        registry=given.registry,
        root=given.root.rstrip("/"),
        reserve=given.reserve_percent / 100,
        verbosity=given.v,
    )


def _parser() -> argparse.ArgumentParser:
    parser = DaemonParser("csi", "Provides volumes of this node to its pods (Container Storage Interface).")
    add = parser.add_argument
    add("--endpoint", default=SOCKET, help="the socket where the kubelet and the provisioner ask")
    add("--registry", default=REGISTRY, help='the folder where the kubelet looks for plugins; "": do not register')
    add("--root", default=ROOT, help="where volumes and snapshots are kept")
    add("--reserve-percent", type=int, default=RESERVE, help="the share of the file system that no volume gets")
    return parser
