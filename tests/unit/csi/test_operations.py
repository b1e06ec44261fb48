"""Work that outlives its caller."""

from __future__ import annotations

import asyncio
import errno

import pytest

from csi.operations import Operations
from nodelib.errors import Permanent
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused


async def test_who_gives_up_does_not_stop_the_work() -> None:
    operations, going, done = Operations(), asyncio.Event(), list[str]()

    async def work() -> Json:
        await going.wait()
        done.append("made")
        return {}

    caller = asyncio.create_task(operations.run("vol-1", work()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    with pytest.raises(Refused) as raised:
        await operations.run("vol-1", work())
    assert raised.value.code == "ABORTED"
    going.set()
    await operations.close()
    assert done == ["made"]
    assert await operations.run("vol-1", work()) == {} and done == ["made", "made"]


async def test_volumes_do_not_wait_for_each_other() -> None:
    operations, going = Operations(), asyncio.Event()

    async def slow() -> Json:
        await going.wait()
        return {"slow": True}

    async def quick() -> Json:
        return {"quick": True}

    first = asyncio.create_task(operations.run("vol-1", slow()))
    await asyncio.sleep(0)
    assert await operations.run("vol-2", quick()) == {"quick": True}
    going.set()
    assert await first == {"slow": True}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "full"), "RESOURCE_EXHAUSTED"),
        (OSError(errno.EBUSY, "busy"), "FAILED_PRECONDITION"),
        (OSError(errno.EIO, "broken"), "INTERNAL"),
        (Permanent("no"), "FAILED_PRECONDITION"),
        (Refused("NOT_FOUND", "none"), "NOT_FOUND"),
    ],
    ids=lambda value: str(value),
)
async def test_every_error_has_a_status(error: Exception, code: str) -> None:
    async def work() -> Json:
        raise error

    with pytest.raises(Refused) as raised:
        await Operations().run("vol-1", work())
    assert raised.value.code == code and raised.value.message
