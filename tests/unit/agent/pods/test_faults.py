"""A runtime fails at random while pods are created, exit and are deleted and the agent is killed: the end is right.

Each seed is another random run; NODEWRIGHT_SOAK=500 makes that many.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter

import pytest

from agent.common.model.pods import RunState
from tests.builders.pods import container
from tests.fakes.faulty_cri import FaultyCri
from tests.fakes.pod_world import World

_SEEDS = int(os.environ.get("NODEWRIGHT_SOAK", "0")) or 6


def _box(name: str) -> dict[str, object]:
    return container(name)


class _Run:
    """One random run: what happens to the world, and what must never be seen in it."""

    def __init__(self, seed: int) -> None:
        self.world = World()
        self.dice = random.Random(seed)
        self.inner = self.world.cri
        self.faulty = FaultyCri(self.inner, seed, self.world.clock)
        self.world.cri = self.faulty  # type: ignore[assignment]
        self.wanted: set[str] = set()
        self.number = 0

    async def act(self) -> None:
        turn = self.dice.random()
        if turn < 0.3 and len(self.wanted) < 5:
            self.number += 1
            uid = f"u{self.number}"
            more = {"initContainers": [_box("first")]} if self.dice.random() < 0.3 else {}
            self.world.create(_box("main"), name=f"pod-{self.number}", uid=uid, terminationGracePeriodSeconds=1, **more)
            self.wanted.add(uid)
        elif turn < 0.5 and self.inner.running():
            one = self.dice.choice(self.inner.running())
            self.inner.exit(one, 0 if one == "first" else self.dice.choice((0, 1)))
        elif turn < 0.65 and self.wanted:
            uid = self.dice.choice(sorted(self.wanted))
            self.wanted.discard(uid)
            self.world.api.ask_deletion(uid, 1)
        elif turn < 0.75:
            await self.world.kill_agent()
            await self._start()
        elif turn < 0.8:
            self.inner.break_stream()
        await self.world.clock.advance(self.dice.uniform(0, 3))
        self.check()

    async def _start(self) -> None:
        rate, self.faulty.rate = self.faulty.rate, 0.0  # the first audit is not part of the test
        await self.world.start_agent()
        self.faulty.rate = rate

    def check(self) -> None:
        running = Counter(
            (one.uid, one.name) for one in self.inner.containers.values() if one.state is RunState.RUNNING
        )
        assert not [key for key, count in running.items() if count > 1], f"two run at once: {self.inner.dump()}"
        assert not [key for key, count in self.inner.starts.items() if count > 1], "one attempt was started twice"

    def settled(self) -> bool:
        """Every wanted pod's containers run, once each; nothing is left of the others."""
        for one in list(self.inner.running()):
            if one == "first":
                self.inner.exit("first")
        shown = {uid for uid in self.wanted if self.world.phase(uid) == "Running"}
        held = {box.uid for box in self.inner.sandboxes.values()} | {one.uid for one in self.inner.containers.values()}
        return shown == self.wanted == set(self.world.api.pods) and held == self.wanted

    async def run(self) -> None:
        await self._start()
        try:
            for _ in range(40):
                await self.act()
            self.faulty.rate = 0.0
            await self.world.until(self.settled, seconds=900, step=5)
            self.check()
        finally:
            await self.world.kill_agent()


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_the_end_state_is_right_whatever_the_runtime_does(seed: int) -> None:
    asyncio.run(_Run(seed).run())
