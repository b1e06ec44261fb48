"""The generation of the ruleset: one socket for all questions, and no late answer is taken for that to a later one."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator

import pytest

from nodelib.netlink.framing import HEADER, attribute
from nodelib.nft.generation import GenerationReader


class Kernel:
    """The other end: answers what it is told to, for each question in turn."""

    def __init__(self) -> None:
        self.opened = 0
        self.theirs: socket.socket | None = None
        self.answers: list[list[bytes]] = []

    def connect(self, timeout: float | None = None) -> socket.socket:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.settimeout(0.05)
        self.opened += 1
        self.said = iter(self.answers)
        return Talking(ours, self)


class Talking(socket.socket):
    """Has an answer waiting as soon as something was sent."""

    def __init__(self, ours: socket.socket, kernel: Kernel) -> None:
        super().__init__(fileno=ours.detach())
        self.settimeout(0.05)
        self._kernel = kernel

    def send(self, data: bytes, flags: int = 0, /) -> int:  # type: ignore[override]
        assert self._kernel.theirs is not None
        for answer in next(self._kernel.said, []):
            self._kernel.theirs.send(answer)
        return len(data)


def generation(number: int, value: int) -> bytes:
    body = bytes(4) + attribute(1, value.to_bytes(4, "big"))
    return HEADER.pack(16 + len(body), (10 << 8) | 15, 0, number, 0) + body


def refusal(number: int, code: int) -> bytes:
    return HEADER.pack(20, 2, 0, number, 0) + struct.pack("=i", -code)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    one = Kernel()
    yield one
    if one.theirs is not None:
        one.theirs.close()


def test_one_socket_for_all_questions(kernel: Kernel) -> None:
    kernel.answers = [[generation(1, 7)], [generation(2, 8)]]
    read = GenerationReader(kernel.connect)
    assert [read(), read()] == [7, 8] and kernel.opened == 1
    read.close()


def test_an_answer_to_another_question_is_passed_over(kernel: Kernel) -> None:
    kernel.answers = [[generation(9, 6), generation(1, 7)]]
    read = GenerationReader(kernel.connect)
    assert read() == 7
    read.close()


@pytest.mark.parametrize("answers", [[refusal(1, errno.EPERM)], [refusal(1, 0)], []])
def test_where_the_kernel_says_none_there_is_none_and_the_next_question_is_asked_anew(
    kernel: Kernel, answers: list[bytes]
) -> None:
    kernel.answers = [answers]
    read = GenerationReader(kernel.connect)
    assert read() is None
    kernel.answers = [[generation(2, 3)]]
    kernel.said = iter(kernel.answers)
    assert read() == 3
    read.close()


def test_where_there_is_no_netlink_there_is_none() -> None:
    def refuse(timeout: float | None = None) -> socket.socket:
        raise OSError(errno.EPROTONOSUPPORT, "no netfilter")

    assert GenerationReader(refuse)() is None
