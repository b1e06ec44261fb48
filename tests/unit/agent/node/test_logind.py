"""logind over a real bus: a private dbus-daemon with a small logind that has the real interface."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.node.edge.logind import LogindBus
from nodelib.errors import Temporary
from tests.fakes.private_bus import DAEMON, PrivateBus, private_bus
from tests.waiting import until

needs_bus = pytest.mark.skipif(DAEMON is None, reason="dbus-daemon is not installed")


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[PrivateBus]:
    with private_bus(tmp_path) as found:
        yield found


@needs_bus
async def test_a_shutdown_waits_for_the_lock_and_can_be_called_off(bus: PrivateBus) -> None:
    logind = LogindBus(bus.address, bus.conf_dir)
    await logind.connect()
    assert await logind.longest_delay() == 5.0
    await logind.allow_delay(40)
    assert await logind.longest_delay() == 40.0
    assert not await logind.is_preparing()
    await logind.inhibit()
    news = logind.shutdowns()
    await asyncio.to_thread(bus.power_off)
    assert await asyncio.wait_for(anext(news), 10) is True
    assert await logind.is_preparing()
    assert await asyncio.to_thread(bus.powered_off) == 0.0
    logind.release()
    logind.release()
    await until(lambda: asyncio.to_thread(bus.powered_off))
    await asyncio.to_thread(bus.cancel)
    assert await asyncio.wait_for(anext(news), 10) is False
    await news.aclose()
    await logind.close()


@needs_bus
async def test_the_news_end_with_the_connection(tmp_path: Path) -> None:
    with private_bus(tmp_path) as bus:
        logind = LogindBus(bus.address, bus.conf_dir)
        await logind.connect()
        news = logind.shutdowns()
        waiting = asyncio.ensure_future(anext(news, None))
        await asyncio.sleep(0)
    assert await asyncio.wait_for(waiting, 10) is None
    await logind.close()


async def test_without_a_bus_the_error_says_what_to_do(tmp_path: Path) -> None:
    logind = LogindBus(f"unix:path={tmp_path}/none")
    with pytest.raises(Temporary, match=r"system bus: .*remove shutdownGracePeriod"):
        await logind.connect()
    await logind.close()
