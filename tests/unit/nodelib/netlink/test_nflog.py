"""Records of reported packets: what the kernel sends is read, and no bytes do any harm."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodelib.netlink import netfilter, nflog
from nodelib.netlink.framing import attributes, messages
from nodelib.netlink.nflog import Record
from tests.builders.packets import report


def test_each_record_of_a_datagram_is_read() -> None:
    data = report("group-ingress-1", b"abc", 7) + report("x" * 300, b"", None)
    assert list(nflog.records(data)) == [Record("group-ingress-1", b"abc", 7), Record("x" * 127, b"", None)]


def test_other_messages_are_no_records() -> None:
    done = netfilter.message(3, 0, 1, bytes(4))
    assert [one.prefix for one in nflog.records(done + report("p", b"x"))] == ["p"]


def test_the_requests_bind_one_group_and_bound_what_is_copied() -> None:
    requests = nflog.binding(4021, copied=128, gathered=16, hundredths=10)
    bodies = [payload for one in requests for _, _, _, payload in messages(one)]
    assert {body[2:4] for body in bodies} == {(4021).to_bytes(2, "big")}
    parts = [dict(attributes(body, 4)) for body in bodies]
    assert parts[0] == {1: b"\1"} and parts[1][2][:5] == (128).to_bytes(4, "big") + b"\2"


@given(st.binary(max_size=300), st.binary(max_size=80), st.integers(0, 100))
def test_no_bytes_raise(data: bytes, body: bytes, cut: int) -> None:
    list(nflog.records(data))
    list(nflog.records(report("p", body, 1)[:-cut] + data))
