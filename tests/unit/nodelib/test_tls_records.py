"""Strangers who speak TLS: what they may have OpenSSL do on an event loop, played by OpenSSL itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.common.edge.http_get import any_certificate
from agent.probes.edge import ProbeIo
from agent.probes.model import GrpcRequest, HttpRequest, Verdict
from agent.server.edge.certificates import ensure_self_signed
from agent.server.edge.tls import ServingTls
from agent.server.model import TlsFiles
from nodelib.kube.access import ClusterAccess
from nodelib.kube.tls import tls_context
from nodelib.tls_records import StrangerContext
from tests.fakes.tls_attacks import Peer, hello

_LONG = 30  # seconds
_X25519, _MLKEM, _UNKNOWN, _FFDHE8192 = 29, 4589, 77, 0x104
_KEY, _WIDE_KEY = os.urandom(32), (4).to_bytes(1024)  # a square, as OpenSSL wants it


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return ensure_self_signed(str(tmp_path_factory.mktemp("pki")), ("x",), ())


def _serving(pair: tuple[str, str]) -> ssl.SSLContext:
    return ServingTls(TlsFiles(*pair)).context


async def test_a_client_that_changes_its_keys_for_ever_is_cut(pair: tuple[str, str]) -> None:
    """Without a limit a second of such a client is as long of the loop, and in turns of seconds."""

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with pytest.raises(ssl.SSLError, match="too many TLS records"):
            await reader.read()

    server = await asyncio.start_server(read, "127.0.0.1", 0, ssl=_serving(pair))
    client = Peer()
    flood = asyncio.create_task(asyncio.to_thread(client.client, server.sockets[0].getsockname()[1]))
    _, going = await asyncio.wait({flood}, timeout=_LONG)
    client.end()
    server.close()
    assert not going and client.updates > 10
    await flood


@pytest.mark.parametrize(
    "request_to",
    [
        pytest.param(lambda port: HttpRequest("https", "127.0.0.1", port, "/", ()), id="https"),
        pytest.param(lambda port: GrpcRequest("127.0.0.1", port, "", tls=True), id="gRPC"),
    ],
)
@pytest.mark.parametrize(
    ("groups", "said"),
    [("", "too many TLS records"), ("ffdhe8192", "finite fields")],
)
async def test_a_pod_that_answers_a_probe_so(
    pair: tuple[str, str], request_to: Callable[[int], HttpRequest | GrpcRequest], groups: str, said: str
) -> None:
    io = ProbeIo(None)  # type: ignore[arg-type]
    with Peer().server(*pair, groups=groups) as port:
        outcome = await io.run(request_to(port), "c", _LONG)
    await io.close()
    assert (outcome.verdict, said in outcome.output, "('" in outcome.output) == (Verdict.FAILURE, True, False), outcome


@pytest.mark.parametrize("context", [any_certificate(), tls_context(ClusterAccess("https://x"))])
def test_no_group_of_a_servers_own_in_tls_1_2(context: ssl.SSLContext) -> None:
    """One of 10,000 bits took five seconds."""
    assert {one["kea"] for one in context.get_ciphers()} & {"kx-dhe"} == set()


async def test_who_answers_for_the_api_server_chooses_no_slow_group(pair: tuple[str, str]) -> None:
    context = tls_context(ClusterAccess("https://x", ca_data=Path(pair[0]).read_bytes()))
    with Peer().server(*pair, groups="ffdhe8192") as port, pytest.raises(ssl.SSLError, match="finite fields"):
        await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="x")
    plain = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=_serving(pair))
    port = plain.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="x")
    writer.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="y")
    plain.close()


def _cut(record: bytes, size: int) -> bytes:
    """The same message in records of this size."""
    parts = (record[5:][at : at + size] for at in range(0, len(record) - 5, size))
    return b"".join(record[:3] + len(part).to_bytes(2) + part for part in parts)


@pytest.mark.parametrize(
    ("sent", "is_answered"),
    [
        pytest.param(hello((_X25519,), ((_X25519, _KEY),)), True, id="as all do"),
        pytest.param(_cut(hello((_X25519,), ((_X25519, _KEY),)), 30), True, id="in many records"),
        pytest.param(hello((_FFDHE8192, _X25519), ()), True, id="asks to be asked again"),
        pytest.param(hello((_FFDHE8192,), ((_FFDHE8192, _WIDE_KEY),)), False, id="finite field"),
        pytest.param(_cut(hello((_FFDHE8192,), ((_FFDHE8192, _WIDE_KEY),)), 30), False, id="in many records, too"),
        pytest.param(hello((_X25519, _FFDHE8192), ((_FFDHE8192, _WIDE_KEY),)), False, id="finite field, or not"),
        pytest.param(hello((_FFDHE8192, _UNKNOWN), ((_UNKNOWN, _KEY),)), False, id="nothing else in common"),
        pytest.param(hello((_MLKEM, _FFDHE8192), ()), False, id="nothing else that every OpenSSL has"),
        pytest.param(hello((_MLKEM, _FFDHE8192, _X25519), ()), True, id="all that there is"),
        pytest.param(b"\x16\x03\x01\0\x04\0\0\0\0" + hello((_X25519,), ()), False, id="another message first"),
        pytest.param(b"\x16\x03\x01\x40\0\x01\0\xff\xff" + bytes(80_000), False, id="a hello without end"),
        pytest.param(b"\x16\x03\x01\0\x01\x01" * 10_000, False, id="many small pieces of one"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", False, id="HTTP"),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_first_hellos(pair: tuple[str, str], sent: bytes, is_answered: bool, at_once: bool) -> None:
    arrived, answer = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = _serving(pair).wrap_bio(arrived, answer, server_side=True)
    error: type[ssl.SSLError] | None = None
    for part in [sent] if at_once else [sent[at : at + 1] for at in range(len(sent))]:
        arrived.write(part)
        try:
            side.do_handshake()
        except ssl.SSLError as found:
            error = type(found)
            if error is not ssl.SSLWantReadError:
                break
    said = answer.read()
    assert (error, said[:1]) == (ssl.SSLWantReadError, b"\x16") if is_answered else error is not ssl.SSLWantReadError
    assert is_answered or not said.startswith(b"\x16")


class _Wire:
    """A client and a server; what each writes is passed on in pieces of `size`."""

    def __init__(self, pair: tuple[str, str], size: int, tickets: int) -> None:
        self._size = size
        self._buffers = [ssl.MemoryBIO() for _ in range(4)]
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tickets else _serving(pair)
        if tickets:
            serving.load_cert_chain(*pair)
            serving.num_tickets = tickets
        self.client = any_certificate().wrap_bio(self._buffers[0], self._buffers[1])
        self.server = serving.wrap_bio(self._buffers[2], self._buffers[3], server_side=True)

    def shake(self) -> None:
        done = set[ssl.SSLObject]()
        while len(done) < 2:
            for side in (self.client, self.server):
                try:
                    side.do_handshake()
                    done.add(side)
                except ssl.SSLWantReadError:
                    pass
                self.pass_on()

    def pass_on(self) -> None:
        for written, arrived in ((1, 2), (3, 0)):
            arrived_there = self._buffers[arrived]
            arrived_there.write(self._buffers[written].read(self._size))

    def received(self, side: ssl.SSLObject, wanted: int) -> bytes:
        found = b""
        while len(found) < wanted:
            try:
                found += side.read(1 << 18)
            except ssl.SSLWantReadError:
                self.pass_on()
        return found


@pytest.mark.parametrize("size", [1, 7, 5000, 1 << 20])
def test_data_arrives_as_it_was_sent(pair: tuple[str, str], size: int) -> None:
    wire, sent = _Wire(pair, size, tickets=0), os.urandom(3000 if size == 1 else 40_000)
    wire.shake()
    wire.client.write(sent)
    assert wire.received(wire.server, len(sent)) == sent
    for at in range(1000):  # records of one byte
        wire.server.write(sent[at : at + 1])
    assert wire.received(wire.client, 1000) == sent[:1000]


@pytest.mark.parametrize("size", [1, 3000, 1 << 20])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_comes_with_the_end_of_the_handshake_is_read(
    pair: tuple[str, str], loop: Callable[[], asyncio.AbstractEventLoop], size: int
) -> None:
    """uvloop reads only as long as something is pending."""
    arrived, written, sent = ssl.MemoryBIO(), ssl.MemoryBIO(), os.urandom(1000)
    client = any_certificate().wrap_bio(arrived, written)

    async def talk() -> bytes:
        got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.set_result(await reader.readexactly(2 * len(sent)))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=_serving(pair))
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(written.read())
                arrived.write(await reader.read(1 << 16))
        for _ in range(2):  # with the end of the handshake, and by itself
            for at in range(0, len(sent), size):
                client.write(sent[at : at + size])
            writer.write(written.read())
            await writer.drain()
            await asyncio.sleep(0.05)
        async with asyncio.timeout(_LONG):
            found = await got
        writer.close()
        server.close()
        return found

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(talk()) == 2 * sent


@pytest.mark.parametrize(("tickets", "is_served"), [(2, True), (20, True), (250, False)])
def test_tickets_of_a_server(pair: tuple[str, str], tickets: int, is_served: bool) -> None:
    wire = _Wire(pair, 1 << 20, tickets)
    wire.shake()
    wire.server.write(b"data")
    if is_served:
        assert wire.received(wire.client, 4) == b"data"
    else:
        with pytest.raises(ssl.SSLError, match="too many TLS records"):
            wire.received(wire.client, 4)


def _certificates(folder: Path, number: int) -> tuple[str, str]:
    """A client's key, and its certificate with as many others that might have issued it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    pem = [
        made.serial_number(one + 1).sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        for one in range(number)
    ]
    (folder / "chain").write_bytes(b"".join(pem))
    private = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    return str(folder / "chain"), str(folder / "key")


@pytest.mark.parametrize(("number", "said"), [(5, "certificate verify failed"), (250, "more than 12288 bytes")])
def test_certificates_of_a_client(pair: tuple[str, str], tmp_path: Path, number: int, said: str) -> None:
    """250 of them took 0.07 s, for a client that nobody knows."""
    serving = ServingTls(TlsFiles(*pair, client_ca_file=pair[0])).context
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    asking.load_cert_chain(*_certificates(tmp_path, number))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = asking.wrap_bio(back, there), serving.wrap_bio(there, back, server_side=True)
    with pytest.raises(ssl.SSLError, match=said):
        while True:
            for side in (client, server):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    assert isinstance(serving, StrangerContext) and serving.spent > 0
