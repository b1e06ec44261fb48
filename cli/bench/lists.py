"""`bench lists`: what the first list of many Pods costs, in pages and as the initial events of a watch.

The Pods are written directly into etcd, and a bare API server serves them. It is started anew before each measurement,
because the memory of an earlier one would hide what a later one takes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import aiohttp

from cli.bench.services.objects import batches
from cli.project import PROJECT
from controlplane.cluster.edge.lab import Lab, Process
from nodelib import command
from nodelib.errors import Invalid
from nodelib.json_values import Json

WAYS = ("pages", "streaming")
_TIME = "2026-01-01T00:00:00Z"
_TICKS = os.sysconf("SC_CLK_TCK")
_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
MEASURES = {
    "seconds": "until the list is there",
    "client_cpu": "CPU of a client, s",
    "client_memory": "memory of a client beyond before, highest, MiB",
    "server_cpu": "CPU of the API server, s",
    "server_memory": "memory of the API server beyond before, highest, MiB",
}


@dataclass(frozen=True, slots=True)
class Load:
    """So many clients at once list so many Pods."""

    pods: int
    clients: int

    def __str__(self) -> str:
        return f"{self.pods:,} Pods, {self.clients} client{'s' if self.clients > 1 else ''}"


def stored(pods: int) -> Iterator[tuple[str, Json]]:
    """(etcd key, object) of each Pod: 3 kB of JSON, as one of a Deployment that runs."""
    for index in range(pods):
        name = f"web-6c54bd5869-{index:05d}"
        yield f"/registry/pods/default/{name}", _pod(name, index)


def _pod(name: str, index: int) -> Json:
    uid = f"9d2a1f00-0000-4000-8000-{index:012x}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6c54bd5869", "uid": uid, "controller": True}
    token = {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    probe = {"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1}
    main = {
        "name": "web",
        "image": "example/web:1.27",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": f"SETTING_{number}", "value": f"value of setting {number}"} for number in range(12)],
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "readinessProbe": {**probe, "successThreshold": 1, "failureThreshold": 3},
        "volumeMounts": [token],
    }
    sources = [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]
    ip = f"10.{128 + (index >> 16)}.{index >> 8 & 255}.{index & 255}"
    box = {"name": "web", "image": "example/web:1.27", "imageID": "sha256:" + 64 * "a", "ready": True, "started": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "creationTimestamp": _TIME,
            "labels": {"app": "web", "pod-template-hash": "6c54bd5869", "tier": "front", "team": f"t{index % 20}"},
            "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
        },
        "spec": {
            "nodeName": f"node-{index % 50}",
            "serviceAccountName": "default",
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "securityContext": {},
            "containers": [main],
            "volumes": [{"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": sources}}],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "startTime": _TIME,
            "conditions": [{"type": one, "status": "True", "lastTransitionTime": _TIME} for one in _CONDITIONS],
            "containerStatuses": [{**box, "restartCount": 0, "state": {"running": {"startedAt": _TIME}}}],
        },
    }


async def populate(lab: Lab, pods: int, data: Path) -> None:
    """Start etcd on the new folder `data`, with the Pods in it. Raises Invalid when it refuses them."""
    url = await lab.start_etcd(data)
    async with aiohttp.ClientSession() as session:
        for body in batches(stored(pods)):
            async with session.post(f"{url}/v3/kv/txn", json=body) as answer:
                if answer.status != 200:
                    raise Invalid((await answer.text())[:500], obj="etcd", step="write objects")


async def measure(lab: Lab, load: Load, way: str) -> Mapping[str, float]:
    """One measurement, by the names of MEASURES. The API server is started for it and stopped after it."""
    server = await lab.start_api_server()
    before, cpu = memory(server.pid, "VmRSS"), _cpu(server)
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # VmHWM begins anew
    worker = [sys.executable, "-m", "cli.bench.lists_worker", lab.access.server, lab.token, way, str(load.pods)]
    runs = [command.run(worker, timeout=600, cwd=str(PROJECT)) for _ in range(load.clients)]
    found = [json.loads(done.stdout) for done in await asyncio.gather(*runs)]
    taken = {"server_cpu": _cpu(server) - cpu, "server_memory": memory(server.pid, "VmHWM") - before}
    await lab.stop(server)
    return {**{name: max(one[name] for one in found) for name in found[0]}, **taken}


def rows(found: Mapping[tuple[Load, str], Sequence[Mapping[str, float]]]) -> list[tuple[str, ...]]:
    """Of each load and measure, the median in each way, and the ratio."""
    made: list[tuple[str, ...]] = []
    for load in dict.fromkeys(load for load, _ in found):
        for name, shown in MEASURES.items():
            pages, streaming = (median(one[name] for one in found[load, way]) for way in WAYS)
            ratio = f"{streaming / pages:.2f}x" if pages > 0 else "-"
            made.append((str(load), shown, f"{pages:.3g}", f"{streaming:.3g}", ratio))
    return made


def memory(process: int | str, name: str) -> float:
    """A field of its status, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def _cpu(process: Process) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
