"""The page over a long time: 1,000 pods and 500 Services that change all the time, in one browser that stays open.

By hand: `NODEWRIGHT_MINUTES=60 ./nodewright test -m soak tests/unit/view/test_page_soak.py`. `view` runs as the command
does, in a process of its own, whose memory is measured; of the browser that of the page's scripts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from tests.browser import Browser, chromium, driven, needs_chromium
from tests.cluster.command_line import PROJECT
from tests.fakes.apiserver import FakeApiServer
from tests.unit.view.world import LIVE, TEXT, put, running, shop, shop_service, shop_slice

MINUTES = float(os.environ.get("NODEWRIGHT_MINUTES", "60"))
PODS, SERVICES = 1000, 500
pytestmark = [pytest.mark.soak, needs_chromium, pytest.mark.timeout(MINUTES * 60 + 600)]
_OPENS = re.compile(r"Open (http://127\.0\.0\.1:\d+/\S+/)")
_VIEWS = ("#/pod/shop/many-0007", "#/node//node1", "#/service/shop/svc-007", "#/packet", "#/cluster")
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


@contextlib.asynccontextmanager
async def viewing(api: FakeApiServer, folder: Path) -> AsyncIterator[tuple[str, int]]:
    """The address, and the process that serves it."""
    parts = {
        "clusters": [{"name": "lab", "cluster": {"server": api.url}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "lab", **parts}))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "view", "--kubeconfig", str(file)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    assert process.stdout is not None
    try:
        found = _OPENS.match((await asyncio.wait_for(process.stdout.readline(), 60)).decode())
        assert found is not None
        yield found[1], process.pid
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)


def resident(pid: int) -> float:
    """MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0]) / 1024


async def heap(browser: Browser) -> float:
    """MiB that the page's scripts have, garbage included."""
    return float((await browser.devtools("Runtime.getHeapUsage"))["usedSize"]) / (1 << 20)


def quarters(samples: list[float]) -> list[float]:
    """The lowest of each quarter: what is left when the garbage has been collected."""
    size = max(1, len(samples) // 4)
    return [min(samples[at * size : (at + 1) * size], default=0.0) for at in range(4)]


def flat(samples: list[float]) -> bool:
    """Whether the last quarter is no more than the second one, but for a twentieth and 3 MiB: the first warms up."""
    _, before, _, after = quarters(samples)
    return after <= before * 1.05 + 3


async def _fill(api: FakeApiServer) -> None:
    await shop(api)
    for at in range(PODS):
        await put(api, running(f"many-{at:04}", _address(at), f"node{1 + at % 2}"))
    for at in range(SERVICES):
        await put(api, shop_service(f"svc-{at:03}", f"10.9.{1 + at // 250}.{at % 250}"))
        await put(api, shop_slice(f"svc-{at:03}", (f"many-{at:04}", _address(at), True)))


def _address(at: int) -> str:
    return f"10.{at // 60000}.{3 + at // 250 % 240}.{at % 250}"


async def _churn(api: FakeApiServer, chance: random.Random) -> None:
    """Each second ten pods change, two endpoints, and one pod goes and comes back."""
    for count in itertools.count():
        for _ in range(10):
            at = chance.randrange(PODS // 2)
            await put(api, running(f"many-{at:04}", _address(at + 1000 * (count % 40)), f"node{1 + at % 2}"))
        for _ in range(2):
            at = chance.randrange(SERVICES)
            await put(api, shop_slice(f"svc-{at:03}", (f"many-{at:04}", _address(at), chance.random() < 0.5)))
        gone = chance.randrange(PODS // 2)
        await api.remove(f"/api/v1/pods/many-{gone:04}")
        await asyncio.sleep(1)
        await put(api, running(f"many-{gone:04}", _address(gone), f"node{1 + gone % 2}"))


async def test_memory_stays_flat_and_news_come_at_once(tmp_path: Path) -> None:
    servers, heaps, updates = list[float](), list[float](), list[float]()
    async with FakeApiServer() as api, viewing(api, tmp_path) as (url, pid):
        await _fill(api)
        with chromium() as window:
            async with driven(window) as browser:
                await browser.open(url)
                await browser.until(f"{LIVE} && document.querySelectorAll('tbody tr').length >= 1505", seconds=60)
                await browser.open("about:blank")
                began = time.monotonic()
                await browser.open(url)
                await browser.until("document.querySelectorAll('tbody tr').length >= 1505", seconds=60)
                whole, painted = time.monotonic() - began, float(await browser.value(_PAINTED)) / 1000
                churning = asyncio.create_task(_churn(api, random.Random(7)))
                try:
                    await _watch(api, browser, url, pid, servers, heaps, updates)
                finally:
                    churning.cancel()
                    print(f"first paint {painted:.3f} s, all 1,505 rows {whole:.3f} s; load {os.getloadavg()[1]:.1f}")
                    print(f"{len(updates)} updates: median {statistics.median(updates or [0]):.3f} s")
                    print(f"server MiB: {_ends(servers)}; scripts MiB: {_ends(heaps)} over {MINUTES:g} min")
    assert painted < 2
    assert statistics.quantiles(updates, n=20)[-1] < 0.2
    assert flat(servers) and flat(heaps)


def _ends(samples: list[float]) -> str:
    return " -> ".join(f"{one:.1f}" for one in quarters(samples))


async def _watch(
    api: FakeApiServer,
    browser: Browser,
    url: str,
    pid: int,
    servers: list[float],
    heaps: list[float],
    updates: list[float],
) -> None:
    """Adds samples of the server's memory, the browser's, and seconds from a change to the page."""
    end = time.monotonic() + MINUTES * 60
    counts = itertools.count()
    while time.monotonic() < end:
        count = next(counts)
        address, name = f"10.77.{count // 250 % 250}.{count % 250}", f"many-{PODS // 2 + count % (PODS // 2):04}"
        began = time.monotonic()
        await put(api, running(name, address, f"node{1 + count % 2}"))
        await browser.until(f"({TEXT}).includes(arguments[1])", f"pod/shop/{name}", address, seconds=120)
        updates.append(time.monotonic() - began)
        servers.append(resident(pid))
        heaps.append(await heap(browser))
        if count % 5 == 4:  # the other views, and back
            for view in _VIEWS:
                await browser.open(url + view)
                await browser.until("document.readyState === 'complete'", seconds=120)
        await asyncio.sleep(3)
