"""What `join` waits for once the agent is running: a certificate, the DaemonSets, its permissions, Ready.

All requests use the node's own credentials, as the daemons' do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterable

from controlplane.host.edge import discovery
from controlplane.host.model import Addons
from controlplane.host.plan import join as plan
from controlplane.supervisor.edge import units
from controlplane.waiting import until
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import object_or_empty
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import ApiError, KubeClient

_READY_WITHIN, _SEEN_WITHIN, _ALLOWED_WITHIN = 180.0, 20.0, 10.0
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def _rights(policies: bool = False) -> str:
    more = " --network-policy" if policies else ""
    return f"An admin applies what nodes need: nodewright join --print-rights{more} | kubectl apply -f -"


async def until_certified(node: str, folder: str, clock: Clock, config: str = plan.KUBELET_CONF) -> None:
    """Wait until the agent with its log in `folder` has a client certificate that the API server accepts.

    A kubeconfig of an earlier membership may still be there, with a certificate that is accepted no more. Raises
    Temporary after three minutes.
    """

    async def waits() -> str:
        if not os.path.exists(config):
            return f"no client certificate yet: {units.tail(f'{folder}/agent.log', 1)}"
        return await _refusal(node, config)

    log = f"{folder}/agent.log"
    action = f"Approve its request (kubectl get csr); where it says forbidden: {_rights()}. Its log: {log}."
    await until(waits, clock, _READY_WITHIN, obj=f"node {node}", step="TLS bootstrap", action=action)


async def _refusal(node: str, config: str) -> str:
    """Why the API server does not accept these credentials, "" when it does (whatever they may do)."""
    try:
        async with _own_client(config) as client:
            await client.get(f"/api/v1/nodes/{node}")
    except ApiError as error:
        return error.message if error.code == 401 or error.code >= 500 else ""
    except NodewrightError as error:
        return str(error)
    return ""


async def addons_on_node(node: str, folder: str, clock: Clock) -> Addons:
    """Which of the cluster's DaemonSets run on this node; they start as soon as the Node object exists."""
    found, pods = Addons(), {"fieldSelector": f"spec.nodeName={node}"}
    async with _own_client() as client:

        async def unregistered() -> str:
            try:
                await client.get(f"/api/v1/nodes/{node}")
            except NodewrightError as error:
                return f"{error.message}; the agent says: {units.tail(f'{folder}/agent.log', 1)}"
            return ""

        step, action = "wait until registered", f"See {folder}/agent.log."
        await until(unregistered, clock, _READY_WITHIN, obj=f"node {node}", step=step, action=action)
        deadline = clock.monotonic() + _SEEN_WITHIN
        while clock.monotonic() < deadline and not (found.network and found.proxy):
            found = plan.addons(plan.daemon_sets_of((await client.get("/api/v1/pods", pods))["items"]))
            await clock.sleep(0.5)
    return found


async def until_allowed(
    node: str, permissions: Iterable[plan.Permission], clock: Clock, *, policies: bool = False
) -> None:
    """Wait until this node has all `permissions`; a new binding takes effect a moment later.

    Raises Temporary with the first that is refused: without it the daemons would run but do nothing.
    """
    wanted = list(permissions)
    async with _own_client() as client:

        async def waits() -> str:
            for permission in wanted:
                answer = await client.post(_REVIEWS, permission.review())
                if not object_or_empty(answer.get("status")).get("allowed"):
                    return f"nodes of this cluster may not {permission}"
            return ""

        await until(
            waits,
            clock,
            _ALLOWED_WITHIN,
            obj=f"node {node}",
            step="ask for the rights of nodes",
            action=f"{_rights(policies)}; then run this again.",
            pause=0.5,
        )


async def until_ready(node: str, folder: str, clock: Clock) -> None:
    """Wait until the Node is Ready. Raises Temporary with its condition's message."""
    async with _own_client() as client:

        async def waits() -> str:
            try:
                found = await client.get(f"/api/v1/nodes/{node}")
            except NodewrightError as error:
                return str(error)
            ready = plan.ready_condition(found)
            return "" if ready.get("status") == "True" else f"not Ready: {ready.get('message', 'no status yet')}"

        step, action = "wait until Ready", f"See {folder}/agent.log."
        await until(waits, clock, _READY_WITHIN, obj=f"node {node}", step=step, action=action)


@contextlib.asynccontextmanager
async def _own_client(config: str = plan.KUBELET_CONF) -> AsyncIterator[KubeClient]:
    async with KubeClient(load_kubeconfig(config), user_agent=discovery.USER_AGENT) as client:
        yield client
