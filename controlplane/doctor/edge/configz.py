"""Asks a running kubelet for its configuration: ours at its local socket, any one through the API server."""

from __future__ import annotations

from urllib.parse import quote

import aiohttp

from nodelib import agent_socket
from nodelib.errors import NodewrightError, NotFound
from nodelib.json_values import Json
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient

SOCKET = "/run/nodewright/agent.sock"
_SECONDS = 5.0


async def by_socket(path: str) -> Json:
    """The KubeletConfiguration of the agent that listens at this socket. Raises NotFound when none answers."""
    try:
        status, found = await agent_socket.get(path, "/configz", _SECONDS)
    except (OSError, aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise NotFound(str(error) or type(error).__name__, obj=path, step="read /configz") from error
    if status != 200:
        raise NotFound(f"the agent answers {status}", obj=path, step="read /configz")
    return _checked(found, path)


async def by_api(kubeconfig: str, node: str) -> Json:
    """The KubeletConfiguration that the kubelet of this node shows the API server. Raises NodewrightError."""
    async with KubeClient(load_kubeconfig(kubeconfig), user_agent="nodewright-doctor", timeout=_SECONDS) as client:
        return _checked(await client.get(f"/api/v1/nodes/{quote(node, safe='')}/proxy/configz"), f"node {node}")


def _checked(answer: object, obj: str) -> Json:
    found = answer.get("kubeletconfig") if isinstance(answer, dict) else None
    if not isinstance(found, dict):
        raise NodewrightError("the answer holds no kubeletconfig", obj=obj, step="read /configz")
    return found
