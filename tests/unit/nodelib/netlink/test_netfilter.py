"""Netlink messages and attributes are encoded and decoded."""

from __future__ import annotations

import errno
import struct

import pytest

from nodelib.netlink import netfilter
from nodelib.netlink.framing import attribute, attributes, messages, nested


def test_what_is_framed_is_read_again() -> None:
    body = attribute(1, b"odd") + nested(2, attribute(3, b"inner"))
    ((kind, flags, number, payload),) = messages(netfilter.message(0x701, netfilter.ACK, 9, body, family=2))
    assert (kind, flags, number, payload[0]) == (0x701, netfilter.ACK | netfilter.REQUEST, 9, 2)
    found = dict(attributes(payload, netfilter.GENMSG))
    assert found[1] == b"odd" and dict(attributes(found[2])) == {3: b"inner"}


def test_an_answer_that_is_an_error() -> None:
    netfilter.check(struct.pack("=i", 0))
    netfilter.check(b"")
    with pytest.raises(FileNotFoundError):
        netfilter.check(struct.pack("=i", -errno.ENOENT))
