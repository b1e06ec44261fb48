"""Names that pods choose: bounded, each asked for once, and no pod in the way of another."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from agent.common.edge.host_resolver import HostResolver
from agent.common.model.addresses import is_address
from nodelib.tasks import cancel_and_wait
from tests.waiting import until


class Silent:
    """A name server that answers for the good names only, until it is released."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.now = self.most = 0
        self._free = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, host: str) -> list[str]:
        with self._lock:
            self.asked.append(host)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            if not host.startswith("good"):
                self._free.wait(60)
            return ["127.0.0.1"]
        finally:
            with self._lock:
                self.now -= 1

    def release(self) -> None:
        self._free.set()


@pytest.fixture
def silent() -> Iterator[Silent]:
    found = Silent()
    yield found
    found.release()


async def test_one_query_a_name(silent: Silent) -> None:
    names = HostResolver(silent)
    waits = [asyncio.create_task(names.addresses("slow", f"pod{number % 3}")) for number in range(50)]
    await until(lambda: silent.asked)
    silent.release()
    assert await asyncio.gather(*waits) == [["127.0.0.1"]] * 50
    assert silent.asked == ["slow"]


async def test_a_pod_does_not_hold_the_names_of_another(silent: Silent) -> None:
    names = HostResolver(silent, most=8, most_of_a_pod=4)
    waits = [asyncio.create_task(names.addresses(f"slow{number}", "evil")) for number in range(100)]
    await until(lambda: silent.now == 4)
    assert await asyncio.wait_for(names.addresses("good", "other"), 30) == ["127.0.0.1"]
    await cancel_and_wait(*waits)
    assert silent.most <= 5


async def test_the_node_has_a_limit(silent: Silent) -> None:
    names = HostResolver(silent, most=8, most_of_a_pod=4, limit=0.2)
    waits = [names.addresses(f"slow{number}", f"pod{number}") for number in range(100)]
    found = await asyncio.gather(*waits, return_exceptions=True)
    assert Counter(str(one) for one in found) == {f"lookup slow{number}: i/o timeout": 1 for number in range(100)}
    assert len(silent.asked) == 8


async def test_who_does_not_wait_any_more_is_not_asked_for(silent: Silent) -> None:
    names = HostResolver(silent, most=1)
    first = asyncio.create_task(names.addresses("slow", "a"))
    await until(lambda: silent.asked)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(names.addresses("later", "b"), 0.05)
    silent.release()
    await first
    assert await names.addresses("good", "c") == ["127.0.0.1"]
    assert silent.asked == ["slow", "good"]


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("", id="empty"),
        pytest.param("x" * (1 << 20), id="a mebibyte"),
        pytest.param("a\nb", id="a line feed"),
        pytest.param("a\x00b", id="NUL"),
    ],
)
async def test_what_is_no_name_is_not_asked_for(silent: Silent, host: str) -> None:
    with pytest.raises(OSError, match="no such host"):
        await HostResolver(silent).addresses(host, "a")
    assert silent.asked == []


async def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(OSError, match=r"^lookup nobody\.invalid: "):
        await HostResolver().addresses("nobody.invalid", "a")


async def test_a_label_that_is_too_long_is_no_crash() -> None:
    with pytest.raises(OSError):
        await HostResolver().addresses("ü" * 200, "a")


@pytest.mark.parametrize(
    ("host", "found"), [("10.0.0.1", True), ("fd00::1", True), ("localhost", False), ("1.2.3", False), ("", False)]
)
def test_addresses_need_no_lookup(host: str, found: bool) -> None:
    assert is_address(host) is found
