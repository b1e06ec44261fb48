"""Who gets in: certificates, tokens, anonymous; reviews, their caches and their failures."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from agent.server.work.auth import TtlCache
from nodelib.errors import Invalid
from nodelib.kube.client import ApiError, ApiUnreachable
from tests.fakes.clock import FakeClock
from tests.unit.agent.server.conftest import Authority, Bench
from tests.waiting import until


async def test_nobody_is_401(bench: Bench) -> None:
    await bench.start(bench.settings())
    assert await bench.get("/pods") == (401, "Unauthorized")
    assert await bench.get("/no/such/path") == (401, "Unauthorized")
    assert bench.reviewer.calls == []


async def test_anonymous_is_asked_for_when_it_is_on(bench: Bench) -> None:
    await bench.start(bench.settings(anonymous=True))
    status, text = await bench.get("/healthz")
    assert (status, text) == (
        403,
        "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[healthz proxy])\n",
    )
    assert bench.reviewer.calls[0][1]["groups"] == ["system:unauthenticated"]


async def test_a_bad_token_is_401_even_with_anonymous_on(bench: Bench) -> None:
    await bench.start(bench.settings(anonymous=True))
    assert (await bench.get("/healthz", headers={"Authorization": "Bearer wrong"}))[0] == 401


async def test_a_certificate_names_user_and_groups(bench: Bench) -> None:
    await bench.start(bench.settings())
    status, _ = await bench.get("/pods", bench.admin())
    assert status == 200
    spec = bench.reviewer.calls[0][1]
    assert (spec["user"], spec["groups"]) == ("admin", ["ops", "system:authenticated"])
    assert spec["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")
    assert spec["resourceAttributes"]["name"] == "node-1"


async def test_a_certificate_of_another_authority_is_refused(bench: Bench, tmp_path: Path) -> None:
    await bench.start(bench.settings())
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
        await bench.get("/pods", bench.tls(Authority(other, "ca").issue("admin", "admin")))


async def test_the_coarse_subresource_is_enough(bench: Bench) -> None:
    await bench.start(bench.settings())
    client = bench.admin()
    bench.reviewer.allowed.discard(("admin", "get", "pods"))
    assert (await bench.get("/pods", client))[0] == 200
    assert [spec["resourceAttributes"]["subresource"] for _, spec in bench.reviewer.calls] == ["pods", "proxy"]


async def test_tokens_are_reviewed_once_and_again_after_their_time(bench: Bench) -> None:
    clock = FakeClock()
    await bench.start(bench.settings(), clock)
    bench.reviewer.tokens["t"] = {"username": "jane", "groups": ["dev"]}
    bench.reviewer.allowed.add(("jane", "get", "metrics"))
    headers = {"Authorization": "Bearer t"}
    for _ in range(3):
        assert (await bench.get("/metrics", headers=headers))[0] == 200
    assert [kind for kind, _ in bench.reviewer.calls] == ["tokenreviews", "subjectaccessreviews"]
    await clock.advance(121)
    assert (await bench.get("/metrics", headers=headers))[0] == 200
    assert [kind for kind, _ in bench.reviewer.calls][2:] == ["tokenreviews"]
    await clock.advance(200)
    assert (await bench.get("/metrics", headers=headers))[0] == 200
    assert [kind for kind, _ in bench.reviewer.calls][3:] == ["tokenreviews", "subjectaccessreviews"]


async def test_a_wrong_token_is_refused_without_a_review_for_ten_seconds(bench: Bench) -> None:
    clock = FakeClock()
    await bench.start(bench.settings(), clock)
    headers = {"Authorization": "Bearer t"}
    for _ in range(3):
        assert (await bench.get("/metrics", headers=headers))[0] == 401
    assert [kind for kind, _ in bench.reviewer.calls] == ["tokenreviews"]
    bench.reviewer.tokens["t"] = {"username": "jane"}  # its account has just been made
    bench.reviewer.allowed.add(("jane", "get", "metrics"))
    await clock.advance(10.1)
    assert (await bench.get("/metrics", headers=headers))[0] == 200


async def test_wrong_tokens_do_not_drive_out_right_ones(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.server.work.auth._MOST_ENTRIES", 8)
    await bench.start(bench.settings())
    bench.reviewer.tokens["t"] = {"username": "jane"}
    for token in ("t", *(f"wrong-{number}" for number in range(20)), "t"):
        await bench.get("/metrics", headers={"Authorization": f"Bearer {token}"})
    asked = [spec["token"] for kind, spec in bench.reviewer.calls if kind == "tokenreviews"]
    assert asked.count("t") == 1 and len(asked) == 21


async def test_a_refusal_is_remembered_for_its_shorter_time(bench: Bench) -> None:
    clock = FakeClock()
    await bench.start(bench.settings(), clock)
    bench.reviewer.tokens["t"] = {"username": "jane"}
    headers = {"Authorization": "Bearer t"}
    for _ in range(2):
        assert (await bench.get("/stats/summary", headers=headers))[0] == 403
    assert len(bench.reviewer.calls) == 2
    await clock.advance(31)
    bench.reviewer.allowed.add(("jane", "get", "stats"))
    assert (await bench.get("/stats/summary", headers=headers))[0] == 503  # allowed; this server has no statistics


async def test_a_permission_is_remembered_for_its_longer_time(bench: Bench) -> None:
    clock = FakeClock()
    await bench.start(bench.settings(), clock)
    bench.reviewer.tokens["t"] = {"username": "jane"}
    bench.reviewer.allowed.add(("jane", "get", "stats"))
    headers = {"Authorization": "Bearer t"}
    assert (await bench.get("/stats/summary", headers=headers))[0] == 503  # allowed; this server has no statistics
    bench.reviewer.allowed.clear()
    await clock.advance(299)
    assert (await bench.get("/stats/summary", headers=headers))[0] == 503
    await clock.advance(2)
    assert (await bench.get("/stats/summary", headers=headers))[0] == 403


async def test_one_review_for_many_at_once(bench: Bench) -> None:
    await bench.start(bench.settings())
    bench.reviewer.tokens["t"] = {"username": "jane"}
    bench.reviewer.allowed.add(("jane", "get", "metrics"))
    headers = {"Authorization": "Bearer t"}
    answers = await asyncio.gather(*(bench.get("/metrics", headers=headers) for _ in range(8)))
    assert {status for status, _ in answers} == {200}
    assert len(bench.reviewer.calls) == 2


async def test_a_review_that_fails_is_tried_again(bench: Bench) -> None:
    clock = FakeClock()
    await bench.start(bench.settings(), clock)
    client = bench.admin()
    bench.reviewer.fail = [ApiUnreachable("refused"), ApiError(500, "InternalError", "boom")]
    asking = asyncio.create_task(bench.get("/metrics", client))
    await until(lambda: len(bench.reviewer.calls) >= 3, clock=clock, advance=1)
    assert (await asking)[0] == 200


async def test_no_reviewer_is_500_and_not_a_yes(bench: Bench) -> None:
    await bench.start(bench.settings())
    client = bench.admin()
    bench.reviewer.fail = [ApiError(403, "Forbidden", "the node may not review")]
    assert await bench.get("/metrics", client) == (
        500,
        "Authorization error (user=admin, verb=get, resource=nodes, subresource=metrics)",
    )
    assert (await bench.get("/metrics", client))[0] == 200  # and it is not remembered


async def test_always_allow(bench: Bench) -> None:
    await bench.start(bench.settings(mode="AlwaysAllow", anonymous=True))
    assert (await bench.get("/pods"))[0] == 200
    assert bench.reviewer.calls == []


async def test_tokens_are_not_reviewed_when_the_webhook_is_off(bench: Bench) -> None:
    await bench.start(bench.settings(webhook=False))
    bench.reviewer.tokens["t"] = {"username": "jane"}
    assert (await bench.get("/metrics", headers={"Authorization": "Bearer t"}))[0] == 401


async def test_an_unknown_mode_is_refused_at_the_start(bench: Bench) -> None:
    with pytest.raises(Invalid, match="authorization mode"):
        await bench.start(bench.settings(mode="Maybe"))


@pytest.mark.parametrize("path", ["/metrics/../exec/ns/web/main", "/logs/../pods", "/./pods", "/metrics/%2e%2e/pods"])
async def test_dot_segments_are_not_served(bench: Bench, path: str) -> None:
    await bench.start(bench.settings())
    client = bench.admin()
    reader, writer = await asyncio.open_connection("localhost", int(bench.url("").rsplit(":", 1)[1]), ssl=client)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    assert answer.split(b" ", 2)[1] == b"400"
    assert bench.reviewer.calls == []
    writer.close()


async def test_a_review_that_nobody_waits_for_any_more_is_given_up() -> None:
    """Whoever sends a token of a megabyte and leaves must not leave it in the memory until its turn comes."""
    cache: TtlCache[int] = TtlCache(FakeClock())
    running, begun = 0, 0

    async def ask() -> int:
        nonlocal running, begun
        running, begun = running + 1, begun + 1
        try:
            await asyncio.sleep(0.001 if begun > 1 else 3600)
            return begun
        finally:
            running -= 1

    def get() -> asyncio.Task[int]:
        return asyncio.create_task(cache.get(b"key", ask, lambda _: 10.0))

    first, second = get(), get()
    await until(lambda: running == 1)
    first.cancel()
    await asyncio.wait({first})
    assert running == 1, "somebody waits for it still"
    second.cancel()
    assert await get() == 2, "the next one asks anew, and is not cancelled with those"
    assert second.cancelled() and running == 0
