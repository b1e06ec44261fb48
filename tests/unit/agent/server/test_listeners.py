"""Where the kubelet listens: addresses, ports, and none at all."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from nodelib.errors import Invalid
from tests.unit.agent.server.conftest import Bench


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def test_each_server_is_where_it_was_asked_to_be(bench: Bench) -> None:
    ports = free_port(), free_port()
    settings = replace(
        bench.settings(), address="127.0.0.2", port=ports[0], healthz_address="127.0.0.3", healthz_port=ports[1]
    )
    server = await bench.start(settings)
    assert server.addresses == {"kubelet": ("127.0.0.2", ports[0]), "healthz": ("127.0.0.3", ports[1])}
    for place in server.addresses.values():
        socket.create_connection(place, 5).close()


async def test_a_server_that_is_switched_off_is_not_there(bench: Bench) -> None:
    server = await bench.start(replace(bench.settings(), enabled=False))
    assert set(server.addresses) == {"healthz"}
    await server.close()
    server = await bench.start(replace(bench.settings(), healthz_port=0))
    assert set(server.addresses) == {"kubelet"}


async def test_a_port_that_is_in_use_is_said(bench: Bench) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Invalid):
            await bench.start(replace(bench.settings(), port=int(taken.getsockname()[1])))
