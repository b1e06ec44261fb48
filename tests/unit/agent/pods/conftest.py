"""What tests of pods share: a world with an agent that runs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.pod_world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.start_agent()
    yield made
    await made.kill_agent()
