"""What panels ask of kube-state-metrics, as a node's own figures are joined with it: a few of its families, read from
the API at each scrape. It stands in for it, since it is no part of a node and is not what is tested.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

from aiohttp import web

from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.quantity import parse

_UNITS = {"cpu": "core", "memory": "byte", "pods": "integer"}


@contextlib.asynccontextmanager
async def state_metrics(api: KubeClient, host: str, port: int) -> AsyncIterator[str]:
    """Serve them until the block ends; the address for a scrape."""

    async def answer(_: web.Request) -> web.Response:
        pods, nodes = await api.get("/api/v1/pods"), await api.get("/api/v1/nodes")
        lines = [
            *(line for one in pods["items"] for line in _pod(one)),
            *(line for one in nodes["items"] for line in _node(one)),
        ]
        return web.Response(text="\n".join([*lines, ""]))

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()


def _pod(pod: Json) -> Iterator[str]:
    meta, spec = pod["metadata"], pod["spec"]
    own = {"namespace": meta["namespace"], "pod": meta["name"]}
    yield _line("kube_pod_info", {**own, "node": spec.get("nodeName", ""), "uid": meta["uid"]}, 1)
    for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
        yield _line("kube_pod_status_phase", {**own, "phase": phase}, pod["status"].get("phase") == phase)
    for container in spec["containers"]:
        for side, listed in (container.get("resources") or {}).items():
            for resource, amount in listed.items() if side in ("requests", "limits") else ():
                labels = {**own, "container": container["name"], "resource": resource, "unit": _UNITS.get(resource, "")}
                labels["node"] = spec.get("nodeName", "")
                yield _line(f"kube_pod_container_resource_{side}", labels, float(parse(amount)))


def _node(node: Json) -> Iterator[str]:
    for what in ("capacity", "allocatable"):
        for resource, amount in node["status"].get(what, {}).items():
            labels = {"node": node["metadata"]["name"], "resource": resource, "unit": _UNITS.get(resource, "")}
            yield _line(f"kube_node_status_{what}", labels, float(parse(amount)))


def _line(name: str, labels: dict[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {float(value)!r}"
