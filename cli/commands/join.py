"""`nodewright join` and `nodewright leave`."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractContextManager
from dataclasses import replace

from cli.display.quiet import note
from cli.display.steps import Display
from cli.errors import need_root
from cli.project import PROJECT
from controlplane.host.model import Joined, Request
from controlplane.host.plan.join import rights_text
from controlplane.host.work.join import join
from controlplane.host.work.join_programs import FOLDER
from controlplane.host.work.leave import leave
from controlplane.machine.edge.locks import directory_lock
from nodelib.clock import SystemClock
from nodelib.errors import WrongUsage
from nodelib.files import bytes_of

LOCK = "/run/nodewright/join"
_LONGEST = 1024  # bytes of a file with a token


def run(request: Request, *, plain: bool = False) -> None:
    """Join, and print what runs on this node now."""
    need_root("join")
    display = Display(plain=plain or None)
    with display:
        token = token_of(request.token)
        complete = replace(request, token=token, project=str(PROJECT), python=sys.executable)
        with _alone():
            joined = asyncio.run(join(complete, display, SystemClock()))
    note(report(joined))


def token_of(text: str) -> str:
    """The token itself, or what the file after an @ holds. Raises WrongUsage."""
    if not text.startswith("@"):
        return text
    try:
        return bytes_of(text[1:], _LONGEST).decode("ascii", errors="replace").strip()
    except OSError as error:
        raise WrongUsage(
            error.strerror or str(error), obj=text[1:], step="read the token", action="Name a file after the @."
        ) from error


def print_rights(*, policies: bool = False) -> None:
    """Print the RBAC objects that an admin applies before a join by token."""
    print(rights_text(policies), end="")


def run_leave(*, plain: bool = False) -> None:
    """Leave, and print what remains to be done in the cluster."""
    need_root("leave")
    display = Display(plain=plain or None)
    with display, _alone():
        asyncio.run(leave(display, SystemClock(), str(PROJECT)))
    note("This machine is no longer a node. Remove its Node object: kubectl delete node NAME")


def _alone() -> AbstractContextManager[None]:
    """Raises Conflict while another join or leave is running: both would write the files of one node."""
    return directory_lock(LOCK, holder="`join` or `leave`")


def report(joined: Joined) -> str:
    """What runs on the node, and where its logs are."""
    addons = joined.addons
    network = f"DaemonSet {addons.network}" if addons.network and joined.network == "none" else joined.network
    proxy = f"DaemonSet {addons.proxy}" if addons.proxy and joined.proxy == "none" else joined.proxy
    return "\n".join(
        (
            f"\nNode {joined.node} is Ready, {joined.seconds:.1f} s.",
            f"  pod network: {network}",
            f"  service proxy: {proxy}",
            *(["  network policies: enforced"] if joined.policies else []),
            f"  logs: {FOLDER}/*.log",
        )
    )
