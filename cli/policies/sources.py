"""Asks the policy daemons of this machine's nodes by their local sockets. Any of them may be down."""

from __future__ import annotations

import asyncio
import errno

from cli import clusters
from controlplane.cluster.model import Cluster
from nodelib.inner_sockets import reached
from nodelib.json_values import Json, compact, decode, object_or_empty, objects_in
from nodelib.text import one_line
from policy.settings import SOCKET

NOT_ENFORCED = (
    "network policies are not enforced in this cluster: "
    "it was made with --no-network-policy, --kubeadm or --agent upstream"
)
_NOT_RUNNING = "its policy daemon is not running"
_SECONDS = 3.0
_LARGEST = 4 << 20  # bytes of an answer
_SHOWN = 200  # bytes of an error
_PAGES = 24  # of one daemon: more than all that it remembers


def sockets(cluster: Cluster | None) -> dict[str, str]:
    """The daemons' sockets by node; without a cluster this machine's own. "" where none runs."""
    return clusters.sockets(cluster, "policy", SOCKET)


async def drops(path: str, after: int = 0, *, wait: float = 0) -> tuple[Json | None, str]:
    """The daemon's drops after that number, or None and the reason. It may `wait` for so many seconds for one."""
    question: Json = {"about": "drops", "after": after} | ({"wait": True} if wait else {})
    if not path:
        return None, _NOT_RUNNING
    try:
        async with asyncio.timeout(_SECONDS + wait):
            answer = object_or_empty(await _ask(path, question))
    except (OSError, ValueError, TimeoutError) as error:
        return None, _why_silent(error)
    if not isinstance(answer.get("drops"), list) or not isinstance(answer.get("number"), int):
        return None, "its policy daemon answers with no drops"
    return answer, ""


async def every_drop(path: str) -> tuple[Json | None, str]:
    """All drops of a daemon, as drops() has them."""
    answer, why = await drops(path)
    found: dict[str, object] = {}
    for _ in range(_PAGES):
        if answer is None:
            return None, why
        # One that goes on meanwhile comes again, with another number.
        found |= {_flow(one): one for one in objects_in(answer["drops"])}
        if answer.get("more") is not True:
            break
        answer, why = await drops(path, answer["number"])
    return None if answer is None else answer | {"drops": list(found.values())}, why


def _flow(drop: Json) -> str:
    return compact([drop.get(key) for key in ("direction", "from", "to")])


async def _ask(path: str, question: Json) -> object:
    with reached(path) as way:
        reader, writer = await asyncio.open_unix_connection(way, limit=_LARGEST)
    try:
        writer.write(compact(question).encode() + b"\n")
        await writer.drain()
        answer = await reader.readline()
    finally:
        writer.close()
    return await asyncio.to_thread(decode, answer)


def _why_silent(error: Exception) -> str:
    match getattr(error, "errno", None):
        case errno.EACCES | errno.EPERM:
            return "only root may open its policy daemon's socket"
        case errno.ENOENT | errno.ECONNREFUSED | errno.ESRCH:
            return _NOT_RUNNING
    return f"its policy daemon does not answer ({one_line(str(error), _SHOWN) or type(error).__name__})"
