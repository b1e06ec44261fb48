"""What the command lines of a node's daemons have in common (policy, loadbalancer, csi)."""

from __future__ import annotations

import argparse
import socket
from typing import NoReturn

from nodelib.errors import Invalid


class DaemonParser(argparse.ArgumentParser):
    """Of `python -m PROGRAM`. Raises Invalid, which names the flag, and does not end the process."""

    def __init__(self, program: str, description: str) -> None:
        super().__init__(prog=program, description=description)
        self.add_argument(
            "--hostname-override", default="", help="the name of this node's Node object; default: the host's name"
        )
        self.add_argument("-v", "--v", type=int, default=2, help="4 and more: debug messages")

    def error(self, message: str) -> NoReturn:
        action = f"See `python -m {self.prog} --help`."
        raise Invalid(message, obj=self.prog, step="read the command line", action=action)


def node_name(override: str) -> str:
    """The name of the Node object, as upstream's nodeutil.GetHostname makes it."""
    return (override or socket.gethostname()).strip().lower()


def listen_address(text: str, program: str) -> tuple[str, int]:
    """Address and port of --bind-address. Raises Invalid."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise Invalid(f"--bind-address {text} is not ADDRESS:PORT", obj=program)
    return host.strip("[]"), int(port)
