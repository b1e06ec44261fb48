"""`nodewright status`: nodes, daemons, and what is not as it should be, each in a sentence."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import IO

from cli.clusters import find, is_stopped
from cli.display.columns import aligned, say
from controlplane.cluster.advice import ours
from controlplane.cluster.work.status import Daemon, NodeStatus, Status, read_status
from nodelib.durations import roughly
from nodelib.kube.times import time_or
from nodelib.text import counted, one_line

_LONGEST = 400  # bytes of what others say
_MOST_PODS = 20


def run(name: str, *, as_json: bool) -> None:
    """Show the status; exit status 1 unless healthy()."""
    cluster = find(name)
    status = asyncio.run(read_status(cluster))
    if as_json:
        print(json.dumps(asdict(status), indent=1))
    elif is_stopped(cluster):
        print(f"Cluster {name} is stopped, or this machine was restarted. {ours(name, 'start')} brings it back.")
    else:
        show(status, sys.stdout)
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


def show(status: Status, out: IO[str]) -> None:
    """Print it; tables fit 80 columns, and no word is broken."""
    say(out, lines(status, time.time()))


def lines(status: Status, now: float) -> Iterator[str]:
    """The cluster, its nodes and daemons as tables, each followed by what is wrong; then pods that are not ready."""
    api = "answers" if not status.api else f"does not answer ({one_line(status.api, _LONGEST)})"
    yield f"Cluster {status.name}, nodes on {status.subnet}. API server {status.api_url} {api}."
    settings = {**status.settings, "version": status.version}
    yield ", ".join(f"{name}: {value}" for name, value in settings.items() if value)
    if status.certificates:
        yield f"The first certificate to expire: {status.certificates}."
    for path in status.missing:
        yield f"missing: {path} ({ours(status.name, 'up')} repairs it)"
    for words in status.skew:
        yield f"version skew: kubelet {words}."
    yield from _nodes(status, now)
    yield from _daemons(status)
    yield ""
    yield f"Logs: {status.logs}"
    yield from _pods(status)


def _nodes(status: Status, now: float) -> Iterator[str]:
    yield ""
    rows = [("NODE", "ADDRESS", "STATE", "PODS", "PROXY")]
    for node in status.nodes:
        rows.append((node.name, node.address, _state(node), str(node.pods), _proxy(node, now)))
    yield from aligned(rows)
    for nodes, versions in _versions(status.nodes):
        yield f"  {nodes}: {versions}"
    for node in status.nodes:
        if node.waits_for not in ("", node.state):
            yield f"  {node.name}: {one_line(node.waits_for, _LONGEST)}"
        if node.certificate:
            yield f"  {node.name}: serving certificate: {one_line(node.certificate, _LONGEST)}"
        if node.proxy_problem:
            yield f"  {node.name}: the proxy {one_line(node.proxy_problem, _LONGEST)}"
    if not status.api and any(node.waits_for for node in status.nodes):
        yield f"  {ours(status.name, 'doctor')} says what to do."


def _state(node: NodeStatus) -> str:
    """In a few words; the whole sentence is below the table."""
    return ", ".join(filter(None, (node.state, node.feels)))


def _proxy(node: NodeStatus, now: float) -> str:
    then = time_or(0.0, node.proxy_synced)
    return f"{node.proxy_state} {roughly(max(0.0, now - then))} ago" if then else node.proxy_state


def _versions(nodes: tuple[NodeStatus, ...]) -> Iterator[tuple[str, str]]:
    """Nodes that run the same are one line."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if node.version:
            said = ", ".join(filter(None, (f"kubelet {node.version}", node.runtime.replace("://", " "))))
            found.setdefault(said, []).append(node.name)
    for said, names in found.items():
        yield "all" if len(names) == len(nodes) > 1 else ", ".join(names), said


def _daemons(status: Status) -> Iterator[str]:
    yield ""
    rows = [("UNIT", "DAEMON", "STATE", "PID", "STARTS")]
    for daemon in status.daemons:
        rows.append((daemon.unit, daemon.name, "running" if daemon.alive else "down", _pid(daemon), str(daemon.starts)))
    rows += [(unit, "supervisor", "down", "", "") for unit, pid in status.supervisors.items() if not pid]
    yield from aligned(rows)
    down = [one for one in status.daemons if not one.alive]
    for unit, names in _never_started(down).items():
        yield f"  {unit}: {', '.join(names)} {'has' if len(names) == 1 else 'have'} not been started"
    for daemon in (one for one in down if one.starts):
        how = f"it ended with {daemon.last_exit}" if daemon.last_exit else "how it ended is not known"
        log = status.logs.replace("UNIT", daemon.unit).replace("DAEMON", daemon.name)
        yield f"  {daemon.unit}: {daemon.name} is down, {one_line(how, _LONGEST)}; its log: {log}"
    if down or not all(status.supervisors.values()):
        yield f"  {ours(status.name, 'up')} starts what is down."


def _never_started(down: Iterable[Daemon]) -> dict[str, list[str]]:
    """Names by unit. They have no log."""
    found: dict[str, list[str]] = {}
    for daemon in down:
        if not daemon.starts:
            found.setdefault(daemon.unit, []).append(daemon.name)
    return found


def _pods(status: Status) -> Iterator[str]:
    waiting = [pod for pod in status.pods if not pod.ready and pod.phase != "Succeeded"]
    yield f"{len(status.pods)} pods, {len(status.pods) - len(waiting)} of them ready or completed."
    for pod in waiting[:_MOST_PODS]:
        said = one_line(pod.reason or pod.phase, _LONGEST)
        yield f"  {pod.namespace}/{pod.name} on {pod.node or 'no node'}: {said}"
    if len(waiting) > _MOST_PODS:
        yield f"  and {len(waiting) - _MOST_PODS} more"
    for one in status.podless[:_MOST_PODS]:
        yield f"  {one.kind} {one.namespace}/{one.name} {one_line(one.reason, _LONGEST)}"
    if len(status.podless) > _MOST_PODS:
        yield f"  and {counted(len(status.podless) - _MOST_PODS, 'more workload')} without pods"
    if waiting or status.podless:
        yield f"  {ours(status.name, 'why')} says why, and what to do."


def _pid(daemon: Daemon) -> str:
    return str(daemon.pid) if daemon.alive else ""
