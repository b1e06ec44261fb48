"""What a failed soak has to say of a pod that restarted: its status, its attempts in the runtime, and the logs."""

from __future__ import annotations

import json
from pathlib import Path

from agent.common.model.errors import CriNotFound
from tests.cluster.world import Object, World

_LINES = 25  # of each log


async def restart_report(world: World, node: str, obj: Object) -> str:
    """Of one pod: each container's status, each attempt with its end, and what the agent and containerd logged of it.

    Nothing is waited for: what the runtime has already removed is missing.
    """
    name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
    shown = ("name", "restartCount", "state", "lastState", "containerID")
    statuses = [
        {key: one[key] for key in shown if key in one}
        for kind in ("initContainerStatuses", "containerStatuses")
        for one in obj.get("status", {}).get(kind) or []
    ]
    ids, attempts = [uid], list[str]()
    async with world.cri(node) as cri:
        for listed in await cri.list_containers(uid):
            ids.append(listed.id)
            try:
                one = await cri.container_status(listed.id)
            except CriNotFound:
                attempts.append(f"{listed.name} attempt {listed.attempt} was removed meanwhile")
                continue
            attempts.append(
                f"{one.name} attempt {one.attempt} {one.state.value}{' cut' if one.cut else ''} {one.id[:12]}"
                f" created {one.created_at} started {one.started_at} finished {one.finished_at}"
                f" exit {one.exit_code} {one.reason} {one.message!r}"
            )
    logs = Path(world.cluster.log_dir(node))
    lines = {
        log: [line for line in (logs / log).read_text(errors="replace").splitlines() if _about(line, name, ids)]
        for log in ("agent.log", "containerd.log")
    }
    logged = "\n".join(f"  {log}: {line[:400]}" for log, found in lines.items() for line in found[-_LINES:])
    return f"{name}: {json.dumps(statuses)}\n  " + "\n  ".join(attempts) + f"\n{logged}"


def _about(line: str, name: str, ids: list[str]) -> bool:
    return name in line or any(one in line for one in ids)
