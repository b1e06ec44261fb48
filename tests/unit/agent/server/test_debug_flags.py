"""/debug/flags/v changes the verbosity of the running agent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from nodelib.daemons import log
from nodelib.daemons.log import LogOptions
from tests.unit.agent.server.conftest import Bench


@pytest.fixture(autouse=True)
def own_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    log.setup(LogOptions(), "agent")
    yield
    root.setLevel(level)


async def test_put_sets_the_verbosity(bench: Bench) -> None:
    await bench.start(bench.settings(mode="AlwaysAllow", anonymous=True))
    assert not logging.getLogger().isEnabledFor(logging.DEBUG)
    said = "successfully set klog.logging.verbosity to "
    assert await bench.get("/debug/flags/v", method="PUT", data=b"4") == (200, f"{said}4")
    assert logging.getLogger().isEnabledFor(logging.DEBUG)
    assert await bench.get("/debug/flags/v", method="PUT", data=b"-1") == (200, f"{said}-1")
    assert not logging.getLogger().isEnabledFor(logging.DEBUG)


@pytest.mark.parametrize(
    ("method", "body", "status", "words"),
    [
        ("GET", b"", 406, "unsupported http method"),
        ("POST", b"4", 406, "unsupported http method"),
        ("PUT", b"", 400, "failed set klog.logging.verbosity"),
        ("PUT", "²".encode(), 400, "failed set klog.logging.verbosity"),
        ("PUT", b"9999999999", 400, "failed set klog.logging.verbosity"),
        ("PUT", b"4" * (1 << 20), 400, "failed set klog.logging.verbosity"),
    ],
)
async def test_what_is_no_number_is_refused(bench: Bench, method: str, body: bytes, status: int, words: str) -> None:
    await bench.start(bench.settings(mode="AlwaysAllow", anonymous=True))
    got, text = await bench.get("/debug/flags/v", method=method, data=body)
    assert got == status and words in text and len(text) < 200
    assert not logging.getLogger().isEnabledFor(logging.DEBUG)


async def test_it_takes_the_right_to_update_nodes_proxy(bench: Bench) -> None:
    pair = bench.tls(bench.authority.issue("admin", "admin"))
    await bench.start(bench.settings(unauthorized_ttl=0))
    status, text = await bench.get("/debug/flags/v", pair, method="PUT", data=b"4")
    assert status == 403 and "verb=update, resource=nodes, subresource(s)=[proxy]" in text
    bench.reviewer.allowed.add(("admin", "update", "proxy"))
    assert (await bench.get("/debug/flags/v", pair, method="PUT", data=b"4"))[0] == 200


async def test_it_can_be_switched_off(bench: Bench) -> None:
    settings = bench.settings(mode="AlwaysAllow", anonymous=True)
    await bench.start(replace(settings, debug_flags_handler=False))
    assert await bench.get("/debug/flags/v", method="PUT", data=b"4") == (405, "flags endpoint is disabled.\n")
    assert not logging.getLogger().isEnabledFor(logging.DEBUG)
