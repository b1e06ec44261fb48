"""Every endpoint, verb and identity: who gets in where. The rules are upstream's, with one exception that is marked.

What upstream's kubelet answers to the same table is compared on a cluster (tests/cluster/test_access_table.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.unit.agent.server.access import ENDPOINTS, METHODS, RIGHTS, expected
from tests.unit.agent.server.conftest import Bench


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.mark.parametrize("identity", RIGHTS)
async def test_who_gets_in_where(bench: Bench, session: aiohttp.ClientSession, identity: str) -> None:
    await bench.start(bench.settings(anonymous=identity == "anonymous"))
    tls, headers = bench.tls(), {}
    if identity not in ("anonymous", "nobody", "a wrong token"):
        bench.reviewer.tokens["right"] = {"username": identity, "groups": ["g"]}
        bench.reviewer.allowed |= {(identity, verb, name) for verb, name in RIGHTS[identity]}
        headers = {"Authorization": "Bearer right"}
    elif identity == "a wrong token":
        headers = {"Authorization": "Bearer wrong"}
    wrong = []
    for path in ENDPOINTS:
        for method in METHODS:
            async with session.request(method, bench.url(path), ssl=tls, headers=headers) as answer:
                text = await answer.text()
            found = "401" if answer.status == 401 else "403" if text.startswith("Forbidden (") else "in"
            if found != expected(identity, method, path):
                wrong.append((method, path, found, answer.status, text[:100]))
    assert wrong == []


@pytest.mark.parametrize("method", METHODS)
async def test_streams_as_upstream_when_the_gate_is_off(bench: Bench, method: str) -> None:
    await bench.start(bench.settings(streams_need_create=False))
    bench.reviewer.tokens["right"] = {"username": "reader"}
    bench.reviewer.allowed.add(("reader", "get", "proxy"))
    headers = {"Authorization": "Bearer right"}
    for root in ("/exec", "/attach"):
        status, text = await bench.get(f"{root}/ns/web/main?output=1", method=method, headers=headers)
        assert text.startswith("Forbidden (") is (method != "GET"), (status, text)
