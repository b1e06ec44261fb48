"""The addresses that may be given away: ranges as users write them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address

from nodelib.addresses import Address, parse_address, parse_network, special
from nodelib.errors import Invalid

MOST_RANGES = 16
_SHOWN = 200  # characters of a text that is not understood


@dataclass(frozen=True, slots=True)
class Range:
    """From the first to the last address, both included."""

    first: Address
    last: Address

    def __contains__(self, address: Address) -> bool:
        return address.version == self.first.version and int(self.first) <= int(address) <= int(self.last)

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Pool:
    """Ranges, in the order in which addresses are taken from them."""

    ranges: tuple[Range, ...] = ()

    def __contains__(self, address: Address) -> bool:
        return any(address in one for one in self.ranges)

    def __str__(self) -> str:
        return ",".join(map(str, self.ranges))

    @property
    def families(self) -> frozenset[int]:
        return frozenset(one.first.version for one in self.ranges)

    def of(self, family: int) -> Pool:
        return Pool(tuple(one for one in self.ranges if one.first.version == family))

    def size(self, family: int) -> int:
        """How many addresses of this family it has."""
        return sum(int(one.last) - int(one.first) + 1 for one in self.of(family).ranges)

    def addresses(self, family: int) -> Iterator[Address]:
        """One after the other: an IPv6 range has more than anybody could list."""
        make = IPv6Address if family == 6 else IPv4Address
        for one in self.of(family).ranges:
            yield from map(make, range(int(one.first), int(one.last) + 1))


def parse(texts: Sequence[str]) -> Pool:
    """Ranges: 192.0.2.10-192.0.2.20, 192.0.2.16/28, 192.0.2.7, or IPv6 likewise. Raises Invalid."""
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    if len(words) > MOST_RANGES:
        raise _invalid(",".join(words), f"has {len(words)} ranges, and {MOST_RANGES} are the most")
    ranges = [_range(word) for word in words]
    for number, one in enumerate(ranges):
        for other in ranges[:number]:
            if one.first in other or other.first in one:
                raise _invalid(str(one), f"overlaps {other}")
    return Pool(tuple(ranges))


def _range(text: str) -> Range:
    try:
        if "/" in text:
            found = _network(text)
        else:
            first, dash, last = text.partition("-")
            found = Range(parse_address(first.strip()), parse_address((last if dash else first).strip()))
    except ValueError as error:
        raise _invalid(text, f"is not a range of addresses ({str(error)[:_SHOWN]})") from error
    if found.first.version != found.last.version or int(found.first) > int(found.last):
        raise _invalid(text, "does not begin before it ends")
    for end in (found.first, found.last):
        if word := special(end):
            raise _invalid(text, f"has {end}, which is a {word} address")
    return found


def _network(text: str) -> Range:
    network = parse_network(text)
    first, last = network[0], network[-1]
    if isinstance(network, IPv4Network) and network.prefixlen < 31:
        return Range(network[1], network[-2])  # some systems take no packets from addresses that end like these
    return Range(first, last)


def _invalid(text: str, problem: str) -> Invalid:
    return Invalid(
        f"{text[:_SHOWN]} {problem}",
        obj="load balancer pool",
        step="read the pool",
        action="Give ranges of free addresses on the nodes' link, such as 192.0.2.200-192.0.2.250.",
    )
