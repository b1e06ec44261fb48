"""A headless Chromium for tests, driven by Debian's chromedriver over its protocol (W3C WebDriver).

    with chromium() as window:
        async with driven(window) as browser:
            await browser.open(url)
            await browser.until("document.title")

The protocol is spoken directly: a client of it would put ten packages into everybody's environment for four verbs.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

_STARTED = re.compile(rb"started successfully on port (\d+)")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # Chromium's own does not run as root, as these tests do
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
)
needs_chromium = pytest.mark.skipif(
    not shutil.which("chromium") or not shutil.which("chromedriver"),
    reason="needs the Debian packages chromium and chromium-driver",
)


@dataclass(frozen=True, slots=True)
class Browser:
    """One window. Scripts are expressions of JavaScript, `arguments` their values."""

    session: aiohttp.ClientSession
    url: str

    async def open(self, url: str) -> None:
        await self._call("url", url=url)

    async def value(self, expression: str, *arguments: object) -> Any:
        return await self._call("execute/sync", script=f"return ({expression})", args=list(arguments))

    async def until(self, expression: str, *arguments: object, seconds: float = 15) -> Any:
        """The first true value of the expression."""
        try:
            async with asyncio.timeout(seconds):
                while not (found := await self.value(expression, *arguments)):
                    await asyncio.sleep(0.02)
                return found
        except TimeoutError:
            shown = await self.value("document.body.innerText")
            raise AssertionError(f"not within {seconds:g} s: {expression}; the page shows:\n{shown}") from None

    async def press(self, *keys: str) -> None:
        """Type with the keyboard; names of special keys are those of the protocol, such as "\\ue00c" for Escape."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        await self._call("actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        await self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self) -> bytes:
        """A PNG of what is shown."""
        async with self.session.get(f"{self.url}/screenshot") as answer:
            return base64.b64decode((await answer.json())["value"])

    async def log(self) -> list[str]:
        """What the browser has complained of since the last call: errors of scripts, refused loads."""
        return [one["message"] for one in await self._call("se/log", type="browser")]

    async def devtools(self, command: str, **params: object) -> Any:
        return await self._call("goog/cdp/execute", cmd=command, params=params)

    async def _call(self, what: str, **body: object) -> Any:
        async with self.session.post(f"{self.url}/{what}", json=body) as answer:
            said = (await answer.json())["value"]
        if answer.status != 200:
            raise AssertionError(f"{what}: {said}")
        return said


@contextlib.contextmanager
def chromium() -> Iterator[str]:
    """A browser, as the address by which driven() reaches it. Ends with its processes and its profile gone."""
    with (
        tempfile.TemporaryDirectory(prefix="nodewright-chromium-", ignore_cleanup_errors=True) as profile,
        subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as driver,
    ):
        try:
            base = f"http://127.0.0.1:{_port(driver)}/session"
            options = {"args": [*_FLAGS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            made = _ask("POST", base, {"capabilities": {"alwaysMatch": wanted}})
            window = f"{base}/{made['sessionId']}"
            try:
                yield window
            finally:
                _ask("DELETE", window)
        finally:
            driver.terminate()


@contextlib.asynccontextmanager
async def driven(window: str) -> AsyncIterator[Browser]:
    """The browser, with an empty page of ordinary size and nothing in its log."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        browser = Browser(session, window)
        await browser.open("about:blank")
        await browser.size(1280, 800)
        await browser.log()
        yield browser


def _port(driver: subprocess.Popen[bytes]) -> int:
    assert driver.stdout is not None
    for line in driver.stdout:
        if found := _STARTED.search(line):
            return int(found[1])
    raise AssertionError("chromedriver ended without a word")


def _ask(method: str, url: str, body: object = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=60) as answer:
        return json.load(answer)["value"]
