"""What dead pods left is removed, each pod's by itself: one that cannot be removed holds up no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.pods.work import orphan_cleanup
from tests.fakes.pod_world import FakeVolumes, World


class _BrokenVolumes(FakeVolumes):
    """Releasing a pod of `broken` fails as code with a defect does."""

    broken = frozenset({"u1"})

    async def release(self, uid: str) -> None:
        if uid in self.broken:
            raise RecursionError("maximum recursion depth exceeded")
        await super().release(uid)


async def test_one_pod_that_cannot_be_removed_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await world.start_agent()
    volumes = _BrokenVolumes()
    volumes.mounted |= {"u0", "u1", "u2", "known"}
    deps = replace(world.deps, resources=replace(world.deps.resources, volumes=volumes))
    await orphan_cleanup.remove(deps, lambda uid: uid == "known")
    await world.kill_agent()
    assert volumes.mounted == {"u1", "known"}
    assert "pod u1: removing what it left behind failed" in caplog.text


async def test_a_sweep_removes_so_many_logs_and_the_rest_is_for_the_next() -> None:
    """A pod that may write to /var/log makes 100,000 folders: all were looked for among all, which took hours, and no
    other pod's directory or cgroup was removed meanwhile."""
    world = World()
    await world.start_agent()
    files = world.deps.containers.files
    files.logs |= {f"u{number}" for number in range(1000)}  # type: ignore[attr-defined]
    await orphan_cleanup.remove(world.deps, lambda uid: False)
    left = len(await files.logged_pods())
    await world.kill_agent()
    assert left == 800
