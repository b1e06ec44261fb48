"""Asks the node's policy daemon to put a new pod's network policies in force, and waits until they are."""

from __future__ import annotations

import asyncio
import json

from cni.model import Attachment
from cni.spec.arguments import Args
from nodelib.errors import Temporary
from nodelib.json_values import Json, decode, object_or_empty

_SECONDS = 8.0  # longer than the daemon takes to say why it cannot
_STARTS_WITHIN, _PAUSE = 3.0, 0.05
_LARGEST = 1 << 16


async def protect(path: str, args: Args, added: Attachment, traceparent: str = "") -> None:
    """Returns once they are in force. Raises Temporary, which says why they are not. `traceparent`: the span that this
    is done for, "" if there is none.

    Nothing is asked without a daemon (`path` ""), or for a container that is not a pod of Kubernetes.
    """
    if not path or not args.pod:
        return
    question = {
        "namespace": args.extra.get("K8S_POD_NAMESPACE", ""),
        "name": args.extra.get("K8S_POD_NAME", ""),
        "uid": args.extra.get("K8S_POD_UID", ""),
        "addresses": [str(address) for address in added.addresses],
        **({"traceparent": traceparent} if traceparent else {}),
    }
    try:
        async with asyncio.timeout(_SECONDS):
            answer = await _ask(path, question)
    except (OSError, ValueError, TimeoutError) as error:
        why = str(error) or f"no answer within {_SECONDS:g} s"
        raise Temporary(
            f"the policy daemon cannot be asked: {why}",
            obj=path,
            action="Start it (`python -m policy`); the pod is tried again and does not run without its policies.",
        ) from error
    if answer.get("protected") is not True:
        raise Temporary(
            str(answer.get("error", "the policy daemon does not say why"))[:500],
            obj=path,
            action=str(answer.get("action", ""))[:500],
        )


async def _ask(path: str, question: Json) -> Json:
    """A daemon that is starting is waited for, and one that was killed before it answered is asked again."""
    deadline = asyncio.get_running_loop().time() + _STARTS_WITHIN
    while True:
        try:
            return await _ask_once(path, question)
        except (FileNotFoundError, ConnectionError):
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(_PAUSE)


async def _ask_once(path: str, question: Json) -> Json:
    reader, writer = await asyncio.open_unix_connection(path, limit=_LARGEST)
    try:
        writer.write(json.dumps(question).encode() + b"\n")
        await writer.drain()
        answer = await reader.readline()
    finally:
        writer.close()
    if not answer:
        raise ConnectionResetError("it ended before it answered")
    return object_or_empty(decode(answer))
