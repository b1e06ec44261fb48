"""A client of `bench lists`: `python -m cli.bench.lists_worker SERVER TOKEN pages|streaming PODS` prints what it took.

It keeps what the daemon of network policies keeps of the Pods of a cluster: names, and what it makes of them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from cli.bench.lists import memory
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector, then_trimmed
from nodelib.tasks import cancel_and_wait


async def _measure(server: str, token: str, way: str, pods: int) -> dict[str, float]:
    access = ClusterAccess(server=server, token=token, insecure=True)
    labels: dict[str, Json] = {}

    def keep(kind: str, pod: Json) -> None:
        labels[pod["metadata"]["name"]] = pod["metadata"]["labels"]

    async with KubeClient(access, user_agent="nodewright-bench", streaming_lists=way == "streaming") as client:
        await client.get("/version")  # the connection is there
        reflector = Reflector(client, "/api/v1/pods", name="pods", on_change=then_trimmed(keep))
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
        before, cpu, started = memory("self", "VmRSS"), time.process_time(), time.monotonic()
        task = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        took = {
            "seconds": time.monotonic() - started,
            "client_cpu": time.process_time() - cpu,
            "client_memory": memory("self", "VmHWM") - before,
        }
        assert len(labels) == pods, f"{len(labels)} Pods"
        await cancel_and_wait(task)
        return took


if __name__ == "__main__":
    _, _server, _token, _way, _pods = sys.argv
    print(json.dumps(asyncio.run(_measure(_server, _token, _way, int(_pods)))))
