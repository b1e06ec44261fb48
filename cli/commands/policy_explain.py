"""`nodewright policy explain`: reads policies, pods and namespaces from the API, and says who may reach whom."""

from __future__ import annotations

import asyncio
import json

from cli.clusters import find
from cli.display.columns import aligned
from cli.policies.explain_text import Objects, document, notes, tables
from cli.policies.sources import NOT_ENFORCED
from cli.why.sources import own_kubeconfig
from controlplane.cluster.edge import state
from nodelib.errors import Invalid, NotFound
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.kube.errors import ApiError, NotServed
from nodelib.kube.listing import Listed, listed
from nodelib.text import one_line
from policy.model import Name
from policy.plan.explain import Explained
from policy.watches.cluster_policies import POLICIES

_LINE = 4000  # bytes of a printed line
_PATHS = ("/api/v1/pods", "/api/v1/namespaces", "/apis/networking.k8s.io/v1/networkpolicies")


def run(name: str, pod: str, *, namespace: str, kubeconfig: str, as_json: bool) -> None:
    """Print it. Raises NotFound for an unknown pod, what the client raises, and Invalid for what is no name."""
    wanted = _name(pod, namespace)
    cluster = state.load(name)
    path = kubeconfig or (cluster.admin_kubeconfig if cluster is not None else own_kubeconfig())
    if not path:
        find(name)  # raises NotFound
    objects = asyncio.run(_objects(path))
    known = objects.pod(wanted)
    if known is None:
        near = ", ".join(objects.named_like(wanted.name))
        action = f"It is in namespace {near}; add -n." if near else "`kubectl get pods -A` lists them."
        raise NotFound(f'no pod "{wanted}"', step="explain its policies", action=action)
    found = objects.explained(known)
    if as_json:
        print(json.dumps(document(found, objects), indent=1))
        return
    for line in explained_lines(found, objects):
        print(one_line(line, _LINE))
    if cluster is not None and not kubeconfig and not cluster.options.enforces_policies:
        print(f"But {NOT_ENFORCED}.")


def explained_lines(found: Explained, objects: Objects) -> list[str]:
    lines = [f"pod {found.pod}" + (f": {found.exempt}" if found.exempt else "")]
    for side in () if found.exempt else found.sides:
        for title, rows in tables(side):
            lines += ["", title, *(f"  {line}" for line in (aligned(rows) if rows else ()))]
    said = notes(found, objects)
    return [*lines, "", *said] if said else lines


async def _objects(kubeconfig: str) -> Objects:
    async with KubeClient(load_kubeconfig(kubeconfig), user_agent="nodewright-policy-explain", timeout=10) as client:
        pods, namespaces, policies = await asyncio.gather(*(listed(client, path) for path in _PATHS))
        cluster, unread = await _cluster_policies(client)
    return await asyncio.to_thread(Objects, pods, namespaces, policies, cluster, unread)


async def _cluster_policies(client: KubeClient) -> tuple[Listed | None, str]:
    """ClusterNetworkPolicies, None without their CRD, or why they could not be read."""
    try:
        return await listed(client, POLICIES), ""
    except NotServed:
        return None, ""
    except ApiError as error:
        return None, "" if error.code == 404 else error.message


def _name(pod: str, namespace: str) -> Name:
    parts = pod.split("/")
    if not all(parts) or len(parts) > 2:
        raise Invalid("is not the name of a pod", obj=pod, action="Write POD, or NAMESPACE/POD.")
    return Name(parts[0], parts[1]) if len(parts) == 2 else Name(namespace, pod)
