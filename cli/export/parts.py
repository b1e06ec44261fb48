"""What the folder of a bug report holds: a list of parts, each a file and how it is read."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial

from cli import versions
from cli.export import sources
from cli.export.redact import Redactor
from controlplane.cluster import advice
from controlplane.cluster.model import CONTROL_PLANE, Cluster
from nodelib.errors import Temporary
from nodelib.kube.client import KubeClient
from nodelib.text import one_line

_LISTS = {
    "events": "/api/v1/events",
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "pods": "/api/v1/pods",
    "services": "/api/v1/services",
    "configmaps": "/api/v1/configmaps",
    "secrets": "/api/v1/secrets",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "resourcequotas": "/api/v1/resourcequotas",
    "endpointslices": "/apis/discovery.k8s.io/v1/endpointslices",
    "deployments": "/apis/apps/v1/deployments",
    "replicasets": "/apis/apps/v1/replicasets",
    "daemonsets": "/apis/apps/v1/daemonsets",
    "statefulsets": "/apis/apps/v1/statefulsets",
    "jobs": "/apis/batch/v1/jobs",
    "cronjobs": "/apis/batch/v1/cronjobs",
    "leases": "/apis/coordination.k8s.io/v1/leases",
    "networkpolicies": "/apis/networking.k8s.io/v1/networkpolicies",
    "ingresses": "/apis/networking.k8s.io/v1/ingresses",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
    "csinodes": "/apis/storage.k8s.io/v1/csinodes",
}
_ON_NODE = {
    "addresses.txt": ("ip", "-details", "address"),
    "routes.txt": ("ip", "route", "show", "table", "all"),
    "routes-ipv6.txt": ("ip", "-6", "route", "show", "table", "all"),
    "route-rules.txt": ("ip", "rule"),
    "neighbours.txt": ("ip", "neighbour"),
    "iptables.txt": ("iptables-save", "-c"),
    "ip6tables.txt": ("ip6tables-save", "-c"),
    "nftables.txt": ("nft", "list", "ruleset"),
    "sockets.txt": ("ss", "-tulnp"),
    "processes.txt": ("ps", "-eo", "pid,ppid,stat,etime,rss,args"),
    "mounts.txt": ("cat", "/proc/self/mountinfo"),
    "pressure.txt": ("sh", "-c", "grep . /proc/loadavg /proc/meminfo /proc/pressure/* 2>/dev/null; df -h -x overlay"),
}
_OURS = {
    "status.txt": ("status",),
    "why.txt": ("why",),
    "why.json": ("why", "-o", "json"),
    "doctor.txt": ("doctor",),
    "images.txt": ("images",),
}
_SETTINGS = (
    "kubernetes/kubelet.yaml",
    "kubernetes/proxy.yaml",
    "etc-containerd/config.toml",
    "supervisor/state.json",
    "hosts",
    "resolv.conf",
)
_MOST_LOGS = 50  # of one unit
_USUAL = re.compile(r"[\w.@-]{1,100}", re.ASCII)  # names of logs; pods that are root of a node may make others


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the folder: its path there, and how its text is read, already without secrets."""

    path: str
    read: Callable[[], Awaitable[str]]


def every(cluster: Cluster, client: KubeClient | None, redactor: Redactor) -> Iterator[Part]:
    """All parts, the quick ones first. `client` None: the cluster is stopped, and its address may be another's."""
    yield Part("versions.json", _versions)
    yield _file("cluster.json", os.path.join(cluster.dir, "cluster.json"), redactor)
    for unit in (CONTROL_PLANE, *(node.name for node in cluster.nodes)):
        yield from _logs(cluster, unit, redactor)
    for node in cluster.nodes:
        folder = cluster.node_dir(node.name)
        for name in _SETTINGS:
            yield _file(f"{node.name}/configuration/{os.path.basename(name)}", os.path.join(folder, name), redactor)
    yield Part("cgroups.txt", partial(asyncio.to_thread, sources.groups, cluster))
    for name, path in _LISTS.items():
        read = partial(_objects, client, path, redactor) if client else partial(_stopped, cluster.name)
        yield Part(f"objects/{name}.json", read)
    for node in cluster.nodes:
        for name, argv in _ON_NODE.items():
            yield Part(f"{node.name}/{name}", _clean(partial(sources.on_node, cluster, node.name, argv), redactor))
    for name, words in _OURS.items():
        yield Part(name, _clean(partial(sources.ours, *words, "--name", cluster.name), redactor))


def _logs(cluster: Cluster, unit: str, redactor: Redactor) -> Iterator[Part]:
    folder = cluster.log_dir(unit)
    try:
        names = sorted(name for name in os.listdir(folder) if ".log" in name)
    except OSError:
        names = ["no-logs.log"]  # its part says why
    usual = [name for name in names if _USUAL.fullmatch(name)][:_MOST_LOGS]
    for name in usual:
        yield _file(f"{unit}/log/{name}", os.path.join(folder, name), redactor)
    if left := [name for name in names if name not in usual]:
        yield Part(f"{unit}/log/left-out.txt", partial(_text, f"{len(left)} files, such as {one_line(left[0], 300)}"))


async def _text(text: str) -> str:
    return text


def _file(path: str, source: str, redactor: Redactor) -> Part:
    return Part(path, _clean(partial(asyncio.to_thread, sources.end_of, source), redactor))


def _clean(read: Callable[[], Awaitable[str]], redactor: Redactor) -> Callable[[], Awaitable[str]]:
    async def cleaned() -> str:
        return await asyncio.to_thread(redactor.text, await read())

    return cleaned


async def _stopped(name: str) -> str:
    raise Temporary("the cluster is stopped", obj=name, action=f"{advice.ours(name, 'start')} brings it back.")


async def _objects(client: KubeClient, path: str, redactor: Redactor) -> str:
    found, whole = await sources.listed(client, path)
    text = await asyncio.to_thread(lambda: json.dumps([redactor.object(one) for one in found], indent=1))
    return text if whole else f"(the first {len(found)}; there are more)\n{text}"


async def _versions() -> str:
    kernel = os.uname()
    return json.dumps({**versions.document(), "kernel": kernel.release, "machine": kernel.machine}, indent=1)
