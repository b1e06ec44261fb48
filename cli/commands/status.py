"""`nodewright status`: tables of nodes and daemons, and the pods that are not ready."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict

from rich.console import Console

from cli.clusters import find
from cli.display.terminal import new_console, new_table
from controlplane.cluster.work.status import Status, read_status


def run(name: str, *, as_json: bool) -> None:
    """Show the status; exit status 1 unless healthy()."""
    status = asyncio.run(read_status(find(name)))
    if as_json:
        print(json.dumps(asdict(status), indent=1))
    else:
        show(status, new_console())
    if not healthy(status):
        raise SystemExit(1)


def healthy(status: Status) -> bool:
    """Whether the API server answers, every namespace and daemon exists and every node is Ready."""
    return (
        not status.api
        and not status.missing
        and all(status.supervisors.values())
        and all(daemon.alive for daemon in status.daemons)
        and not any(node.waits_for for node in status.nodes)
    )


def show(status: Status, console: Console) -> None:
    """Print tables of nodes and daemons, then the pods that are not ready."""
    api = "answers" if not status.api else f"does not answer: {status.api}"
    _say(console, f"Cluster {status.name}, nodes on {status.subnet}. API server {status.api_url} {api}.")
    settings = {**status.settings, "version": status.version, "certificates": status.certificates}
    _say(console, ", ".join(f"{name}: {value}" for name, value in settings.items() if value))
    for path in status.missing:
        _say(console, f"missing: {path} (`./nodewright up --name {status.name}` repairs it)")
    for words in status.skew:
        _say(console, f"version skew: kubelet {words}.")
    nodes = new_table("NODE", "ADDRESS", "STATE", "PODS", "VERSION", "PROXY")
    for node in status.nodes:
        state = ", ".join(filter(None, (node.waits_for or "Ready", node.feels)))
        versions = " ".join(filter(None, (node.version, node.runtime.replace("://", " "))))
        nodes.add_row(node.name, node.address, state, str(node.pods), versions, node.proxy)
    console.print(nodes)
    for node in status.nodes:
        if node.certificate:
            _say(console, f"  {node.name}: serving certificate: {node.certificate}")
    daemons = new_table("UNIT", "DAEMON", "STATE", "PID", "STARTS")
    for daemon in status.daemons:
        state = "running" if daemon.alive else f"down ({daemon.last_exit or 'not started'})"
        daemons.add_row(daemon.unit, daemon.name, state, str(daemon.pid), str(daemon.starts))
    for unit, pid in status.supervisors.items():
        if not pid:
            daemons.add_row(unit, "supervisor", "down", "", "")
    console.print(daemons)
    _say(console, f"Logs: {status.logs}")
    waiting = [pod for pod in status.pods if not pod.ready and pod.phase != "Succeeded"]
    _say(console, f"{len(status.pods)} pods, {len(status.pods) - len(waiting)} of them ready or completed.")
    for pod in waiting:
        _say(console, f"  {pod.namespace}/{pod.name} on {pod.node or 'no node'}: {pod.reason or pod.phase}")


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)
