"""The server over a real socket: tokens, hosts, heads, silence, and what it says of itself."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.unit.view.world import Page, page, put, running, served, shop, shop_service, shop_slice
from tests.waiting import until
from view.edge import server
from view.work import viewer

STATIC = ("", "app.js", "dom.js", "live.js", "tables.js", "wires.js", "detail.js", "life.js", "packet.js", "style.css")


@pytest.fixture
async def here() -> AsyncIterator[Page]:
    async with page() as found:
        yield found


async def test_a_port_that_another_program_has(here: Page) -> None:
    with pytest.raises(Temporary, match="another program has this port") as refused:
        async with served(here.api, here.port):
            pass
    assert "--port" in str(refused.value)


async def ask(here: Page, path: str = "", **options: Any) -> tuple[int, str, dict[str, str]]:
    address = path if path.startswith("http") else f"http://127.0.0.1:{here.port}/{path}"
    async with aiohttp.ClientSession() as session, session.get(address, **options) as answer:
        return answer.status, await answer.text(), {name.lower(): value for name, value in answer.headers.items()}


async def raw(here: Page, sent: bytes, seconds: float = 20) -> bytes:
    """What the server answers to these bytes until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
    writer.write(sent)
    try:
        return await asyncio.wait_for(reader.read(), seconds)
    except ConnectionError:
        return b""
    finally:
        writer.close()


class Browser:
    """Follows what is live, as the page does."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.rows: dict[str, Json] = {}
        self.state: Json = {}
        self.detail: Json = {}

    async def until(self, found: Callable[[], Any], seconds: float = 10) -> None:
        async with asyncio.timeout(seconds):
            while not found():
                said = json.loads(await self.socket.receive_str())
                if said["type"] == "rows":
                    self.rows |= {row["key"]: row for row in said["rows"]}
                    self.rows = {key: row for key, row in self.rows.items() if key not in said["gone"]}
                elif said["type"] == "state":
                    self.state = said
                elif said["type"] == "detail":
                    self.detail = said


@contextlib.asynccontextmanager
async def browser(here: Page, origin: str = "") -> AsyncIterator[Browser]:
    own = origin or f"http://127.0.0.1:{here.port}"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{here.url}live", headers={"Origin": own}) as socket,
    ):
        yield Browser(socket)


async def test_with_the_token_every_file_of_the_page_is_there(here: Page) -> None:
    for name in STATIC:
        status, body, headers = await ask(here, f"{here.token}/{name}")
        assert status == 200 and body, name
        assert headers["referrer-policy"] == "no-referrer" and headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none';") and "unsafe" not in policy and "//" not in policy
        assert "http" not in body.replace("http://www.w3.org/2000/svg", ""), "nothing is loaded from anywhere else"


@pytest.mark.parametrize(
    "path",
    ["", "favicon.ico", "wrong/", "wrong/app.js", "live", "trace?from=a&to=b", "{token}", "{token}/../../etc/passwd",
     "{token}/..%2f..%2fetc%2fpasswd", "{token}/app.py", "{token}//", "{token}/static/app.js", "%00/", "{token}/%00"],
)  # fmt: skip
async def test_nothing_else_is(here: Page, path: str) -> None:
    sent = f"GET /{path.format(token=here.token)} HTTP/1.1\r\nHost: 127.0.0.1:{here.port}\r\nConnection: close\r\n\r\n"
    answer = await raw(here, sent.encode())
    assert answer.split(b" ")[1] in (b"404", b"400"), answer
    assert here.token.encode() not in answer and b"root:" not in answer


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "169.254.1.1", ""])
async def test_a_name_that_leads_here_by_dns_is_refused(here: Page, host: str) -> None:
    status, body, _ = await ask(here, f"{here.token}/", headers={"Host": host})
    assert status in (400, 403) and "<html" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
async def test_nothing_but_get_is_answered(here: Page, method: str) -> None:
    async with aiohttp.ClientSession() as session, session.request(method, here.url, data=b"x" * 10) as answer:
        assert answer.status == 405 and "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
async def test_another_site_cannot_follow_what_is_live(here: Page, origin: str) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as failed:
        async with browser(here, origin):
            pass
    assert failed.value.status == 403


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    ],
    ids=["long header", "many headers", "long path", "tls", "two hosts"],
)
async def test_a_head_that_is_too_large_or_nonsense_is_refused(here: Page, sent: bytes) -> None:
    answer = await raw(here, sent)
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"403", b"404", b"414", b"431"), answer[:200]
    assert (await ask(here, f"{here.token}/"))[0] == 200, "and others are served"


async def test_who_says_nothing_or_has_no_token_is_cut_off(here: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_STRANGER", 0.2)
    host = f"Host: 127.0.0.1:{here.port}\r\n"
    for sent in ("", f"GET /{here.token}/ HTTP/1.1\r\n{host}X:", f"GET /wrong/ HTTP/1.1\r\n{host}\r\n"):
        answer = await raw(here, sent.encode(), 5)
        assert b"200 OK" not in answer


async def test_silent_connections_do_not_keep_others_out_for_long(here: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_STRANGER", 0.5)
    silent = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(200)]

    async def answers() -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            return (await ask(here, f"{here.token}/"))[0] == 200
        return False

    async with asyncio.timeout(10):
        while not await answers():
            await asyncio.sleep(0.05)
    for _, writer in silent:
        writer.close()


async def test_rows_come_at_once_and_then_as_they_change(here: Page) -> None:
    await shop(here.api)
    async with browser(here) as seen:
        await seen.until(lambda: len(seen.rows) == 7 and seen.state.get("synced"))
        assert seen.rows["service/shop/web"]["state"] == "1 of 2 ready"
        await put(here.api, shop_slice("web", ("web-1", "10.0.1.2", True), ("web-2", "10.0.2.2", True)))
        await seen.until(lambda: seen.rows["service/shop/web"]["state"] == "2 of 2 ready", seconds=1)
        await here.api.remove("/api/v1/pods/late")
        await seen.until(lambda: "pod/shop/late" not in seen.rows)
        methods = {method for method, _ in here.api.requests}
        assert methods == {"GET"}, "the page only reads"


async def test_nothing_is_polled(here: Page) -> None:
    await shop(here.api)
    async with browser(here) as seen:
        await seen.socket.send_str('{"look": "pod/shop/late"}')
        await seen.until(lambda: seen.detail and len(seen.rows) == 7)
        before = len(here.api.requests)
        await asyncio.sleep(2.5)  # the time in which a poll would show
        assert here.api.requests[before:] == []


async def test_what_is_looked_at_is_told_with_its_cause_and_remedy(here: Page) -> None:
    await shop(here.api)
    async with browser(here) as seen:
        await seen.until(lambda: len(seen.rows) == 7)
        await seen.socket.send_str('{"look": "pod/shop/late"}')
        await seen.until(lambda: seen.detail)
        (wait,) = [one for one in seen.detail["why"]["waits"] if "ImagePullBackOff" in one["text"]]
        assert "registry" in wait["action"] and "nosuch.example" in wait["error"]
        await seen.socket.send_str('{"look": "service/shop/db"}')
        await seen.until(lambda: seen.detail["kind"] == "service")
        assert "Its selector app=db matches no pod" in seen.detail["problems"][0]["text"]


async def test_a_secret_can_be_asked_for_by_nobody(here: Page) -> None:
    await here.api.put("/api/v1/secrets/key", {"metadata": {"name": "key"}, "data": {"password": "aHVudGVyMg=="}})
    await shop(here.api)
    async with browser(here) as seen:
        for asked in ('{"look": "secret/shop/key"}', '{"look": "pod/shop/web-1"}'):
            await seen.socket.send_str(asked)
        await seen.until(lambda: seen.detail)
        assert seen.detail["key"] == "pod/shop/web-1"
    assert not [path for _, path in here.api.requests if "secrets" in path]


async def test_when_the_api_server_is_away_the_page_says_so_until_it_is_back(here: Page) -> None:
    await shop(here.api)
    async with browser(here) as seen:
        await seen.until(lambda: len(seen.rows) == 7 and seen.state.get("synced"))
        here.api.nonsense = _refuses
        here.api.drop_watches()
        await seen.until(lambda: seen.state["problems"])
        assert len(seen.rows) == 7, "what is known stays"
        await put(here.api, running("while-away", "10.0.1.9", "node1"))
        here.api.nonsense = lambda request: None
        await seen.until(lambda: not seen.state["problems"], seconds=30)
        await seen.until(lambda: "pod/shop/while-away" in seen.rows)


async def _error(request: aiohttp.web.Request, body: bytes) -> aiohttp.web.StreamResponse:
    return aiohttp.web.json_response(
        {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "away"}, status=500
    )


def _refuses(request: aiohttp.web.Request) -> Any:
    return _error


async def test_a_browser_that_takes_nothing_is_let_go(here: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_TAKES", 0.5)
    where, loop = f"127.0.0.1:{here.port}", asyncio.get_running_loop()
    upgrade = (
        f"GET /{here.token}/live HTTP/1.1\r\nHost: {where}\r\nOrigin: http://{where}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.setblocking(False)
        await loop.sock_connect(silent, ("127.0.0.1", here.port))
        await loop.sock_sendall(silent, upgrade.encode())
        assert b" 101 " in await loop.sock_recv(silent, 64)
        assert not _is_closed(silent)
        filling = asyncio.create_task(_fill(here))
        try:
            await until(lambda: _is_closed(silent), 60)
        finally:
            await cancel_and_wait(filling)
    assert (await ask(here, f"{here.token}/"))[0] == 200


async def _fill(here: Page) -> None:
    """More than the kernel keeps for a connection."""
    for at in range(100_000):
        name, labels = f"p{at % 3000}", {str(one): "x" * 250 + str(at) for one in range(8)}
        await put(here.api, running(name, "10.0.1.2", "node1", labels=labels))


def _is_closed(connection: socket.socket) -> bool:
    try:
        connection.send(b"\x8a\x80\x00\x00\x00\x00")  # a pong
    except OSError as error:
        return error.errno in (errno.ECONNRESET, errno.EPIPE)
    return False


async def test_nonsense_from_a_browser_is_no_harm(here: Page) -> None:
    await shop(here.api)
    async with browser(here) as seen:
        for text in ("", "{", "[]", '{"look": {"a": 1}}', '{"look": "pod/' + "a" * 3000 + '"}', "\u0000"):
            await seen.socket.send_str(text)
        await seen.socket.send_str('{"look": "node//node1"}')
        await seen.until(lambda: seen.detail)
        assert "podCIDR: 10.0.1.0/24" in seen.detail["object"]


async def test_the_token_is_in_no_log_also_when_a_browser_cannot_be_served(
    here: Page, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)

    async def fails(self: viewer.Viewer) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(viewer.Viewer, "run", fails)
    async with browser(here) as seen:
        said = await seen.socket.receive()
        assert said.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.ERROR)
    assert "a defect" in caplog.text and here.token not in caplog.text


async def test_a_trace_that_cannot_be_made_here_says_why(here: Page) -> None:
    status, body, _ = await ask(here, f"{here.token}/trace?from=shop/web-1&to=shop/web")
    assert status == 200 and "./nodewright up" in json.loads(body)["problem"]
    status, body, _ = await ask(here, f"{here.token}/trace?from=--a&to=b")
    assert status == 400 and json.loads(body)["problem"]


async def test_a_service_that_is_new_is_there(here: Page) -> None:
    async with browser(here) as seen:
        await seen.until(lambda: seen.state.get("synced"))
        await put(here.api, shop_service("web", "10.9.0.7"))
        await seen.until(lambda: "service/shop/web" in seen.rows, seconds=1)


async def test_silent_connections_do_not_keep_the_page_from_its_owner(here: Page) -> None:
    """Any user of the machine can open them, again and again."""
    silent = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(3 * server._CONNECTIONS)]
    began = asyncio.get_running_loop().time()
    async with browser(here) as one:
        status, _, _ = await ask(here, here.url)
        assert status == 200
        silent += [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(server._CONNECTIONS)]
        await one.until(lambda: one.state)  # who is known is not closed
    assert asyncio.get_running_loop().time() - began < server._STRANGER
    for _, writer in silent:
        writer.transport.abort()
