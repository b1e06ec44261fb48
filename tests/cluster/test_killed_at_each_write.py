"""The agent is killed after each change of its files while it starts a pod: checkpoints, volumes, addresses, logs.

The N-th pod's agent dies at the N-th change, until a pod is ready before there are that many. As in
test_killed_at_each_step.py, it is a young agent that dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from agent.common.edge.inotify import Inotify, Watch
from nodelib.errors import Temporary
from nodelib.tasks import cancel_and_wait
from tests.cluster.restart_report import restart_report
from tests.cluster.start_notes import noted, remove_notes, started_more_than_once, started_unended
from tests.cluster.world import Object, World, status_of

_EVERY = bool(int(os.environ.get("NODEWRIGHT_SOAK", "0")))
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
    pytest.mark.skipif(not _EVERY, reason="runs by hand: NODEWRIGHT_SOAK=1"),
]

NODE = "node1"
_AT_MOST = 80  # changes


class Changes:
    """Changes of all folders below some, new ones too."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots, self._inotify = roots, Inotify()
        self._watched = dict[str, asyncio.Task[None]]()
        self.count = 0
        self.happened = asyncio.Event()

    def look(self) -> None:
        """Watch the folders that are new."""
        for root in self._roots:
            for folder, _, _ in os.walk(root):
                if folder not in self._watched:
                    with contextlib.suppress(Temporary):
                        self._watched[folder] = asyncio.create_task(self._follow(folder, self._inotify.watch(folder)))

    async def close(self) -> None:
        await cancel_and_wait(*self._watched.values())
        self._inotify.close()

    async def _follow(self, folder: str, watch: Watch) -> None:
        with watch:
            while not watch.ended:
                await watch.changed()
                self.count += 1
                self.happened.set()
                self.look()
        del self._watched[folder]


@contextlib.asynccontextmanager
async def killed_at_change(world: World, number: int) -> AsyncIterator[list[int]]:
    """The agent is killed at that change from now on, once; the list has its pid then."""
    home, dead = Path(world.cluster.node_dir(NODE)), list[int]()
    changes = Changes([home / "kubelet", home / "cni", home / "pod-logs"])
    changes.look()

    async def strike() -> None:
        while changes.count < number:
            changes.happened.clear()
            await changes.happened.wait()
        dead.append(await world.pid_once_running(NODE, "agent"))
        os.kill(dead[0], signal.SIGKILL)

    task = asyncio.create_task(strike())
    try:
        yield dead
    finally:
        await cancel_and_wait(task)
        await changes.close()


def with_volumes(name: str) -> Object:
    made = noted(name, NODE, "sleep 3600 & wait", lifecycle={"postStart": {"exec": {"command": ["true"]}}})
    made["spec"]["volumes"] += [
        {"name": "empty", "emptyDir": {}},
        {"name": "settings", "configMap": {"name": "settings"}},
    ]
    mounts = [{"name": one, "mountPath": f"/{one}"} for one in ("empty", "settings")]
    made["spec"]["containers"][0]["volumeMounts"] += mounts
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10m"}, "limits": {"cpu": "100m"}}
    return made


async def test_a_kill_at_each_change_of_its_files(world: World) -> None:
    before, wrong, number = await world.left(NODE), list[str](), 0
    await world.config_map("settings", colour="blue")
    try:
        for number in range(1, _AT_MOST):
            name = f"written-{number}"
            await world.kill(NODE, "agent")
            async with killed_at_change(world, number) as dead:
                await world.create(with_volumes(name))
                shown = await world.ready(name)
            if status_of(shown)["restartCount"] or (await started_more_than_once(world, NODE, name)):
                wrong.append(f"change {number}\n{await restart_report(world, NODE, shown)}")
            await world.delete(name)
            await world.gone(name)
            if not dead:
                break
        wrong += await started_unended(world, NODE)
    finally:
        await remove_notes(world, NODE)
    world.stats.append(("kills, one at each change of files while a pod starts", str(number - 1)))
    assert not wrong, "\n".join(wrong)
    assert 10 < number < _AT_MOST
    await world.nothing_beyond(NODE, before)
