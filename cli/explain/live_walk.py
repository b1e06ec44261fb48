"""Puts the kernels' reports about one packet in order, over all nodes of its path, and says how it ended. Pure.

Each kernel numbers what it traces by itself. It is the same packet on another node when its IP identification (IPv6:
its flow label) is the same: neither translation nor forwarding changes that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from cli.explain.facts import Facts, title
from cli.explain.listening import Listening, silence
from nodelib.firewall.trace_model import endpoint_text

_LINE = re.compile(r"^trace id (?P<id>[0-9a-f]+) (?P<family>\S+) (?P<table>\S+) (?P<chain>\S+) (?P<rest>.*)$")
_COUNTER = re.compile(r"counter packets \d+ bytes \d+ ")
_ADDRESS = re.compile(r"(?<![0-9a-f.:])(?:\d{1,3}\.){3}\d{1,3}(?![0-9.])")
_SOURCE = re.compile(r"\bip6? saddr (\S+)")
_DESTINATION = re.compile(r"\bip6? daddr (\S+)")
_PORT = re.compile(r"\b(?:tcp|udp|sctp) dport (\d+)")
_IDENTITY = re.compile(r"\bip id (\d+)|\bip6 flowlabel (\d+)")
_LENGTH = re.compile(r"\bip6? length (\d+)")
_DROPPED = re.compile(r"\(verdict drop\)|^policy drop|^verdict drop")
_MOST = 2000  # packets of others that are kept in case they are the one


@dataclass(frozen=True, slots=True)
class Report:
    """One line of `nft monitor trace`."""

    id: str
    family: str
    table: str
    chain: str
    rest: str

    @property
    def is_packet(self) -> bool:
        return self.rest.startswith("packet:")

    @property
    def dropped(self) -> bool:
        return bool(_DROPPED.search(self.rest))


@dataclass(slots=True)
class _Track:
    """What one node reported of one packet. `hooks`: those of our own chains that it came by."""

    node: str
    key: tuple[str, ...] = ()
    reports: list[Report] = field(default_factory=list)
    hooks: set[str] = field(default_factory=set)
    destination: str = ""
    port: int = 0
    drop: Report | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How it ended: one word for the verdict, and the sentences for it."""

    word: str
    why: tuple[str, ...] = ()

    @property
    def arrived(self) -> bool:
        return self.word in ("ARRIVES", "LEAVES THE CLUSTER")


def parse(line: str) -> Report | None:
    found = _LINE.match(line)
    return Report(*found.group("id", "family", "table", "chain", "rest")) if found else None


class LiveWalk:
    """Follows the first packet from `source` ("" for anybody) to `destination`:`port`; the others are forgotten.

    `table`: the beginning of the name of our own table, whose chains are the first and the last of a node.
    """

    def __init__(self, source: str, destination: str, port: int, table: str, facts: Facts) -> None:
        self._wanted = (source, destination, port)
        self._own = table
        self._facts = facts
        self._tracks: dict[tuple[str, str], _Track] = {}
        self._chosen: tuple[str, ...] = ()

    @property
    def seen(self) -> bool:
        return bool(self._chosen)

    def feed(self, node: str, line: str) -> None:
        """Take a line that a node reported."""
        report = parse(line)
        if report is None:
            return
        track = self._tracks.setdefault((node, report.id), _Track(node))
        if report.is_packet and track.key and _key(report) != track.key:
            self._tracks[(node, f"{report.id} {len(self._tracks)}")] = track  # the kernel has used the number again
            track = self._tracks[(node, report.id)] = _Track(node)
        if report.is_packet:
            self._packet(track, report)
        if report.table.startswith(self._own):
            track.hooks.add(report.chain)
        else:
            track.reports.append(report)
            track.drop = track.drop or (report if report.dropped else None)
        if len(self._tracks) > _MOST:
            self._tracks.pop(next(iter(self._tracks)))

    def lines(self) -> list[str]:
        """What the packet met, node after node."""
        return [f"{track.node}: {hop_text(one, self._facts)}" for track in self._mine() for one in track.reports]

    def settled(self) -> bool:
        """Whether nothing more can come: it was dropped, or is where its destination lives."""
        tracks = self._mine()
        if any(track.drop for track in tracks):
            return True
        if not tracks:
            return False
        last = tracks[-1]
        home = self._facts.node_of(last.destination)
        return bool(last.hooks & {"input", "postrouting"}) and home in ("", last.node)

    def end(self, watched: Iterable[str], listening: Listening) -> End:
        """How it ended, by what was reported up to now. `watched`: the nodes whose kernels report."""
        tracks = self._mine()
        if not tracks:
            return End("NOT SEEN", ("no such packet was seen on any node",))
        for track in tracks:
            if track.drop is not None:
                return End(f"DROPPED on {track.node}", (f"by {hop_text(track.drop, self._facts)}",))
        last = tracks[-1]
        to = self._facts.named(endpoint_text(last.destination, last.port))
        if not last.hooks & {"input", "postrouting"}:
            why = f"no nftables rule of {last.node} dropped it: its route ends there, or iptables-legacy took it"
            return End(f"LOST on {last.node}", (why, "the same `trace` without --live names the route"))
        home = self._facts.node_of(last.destination)
        if home and home != last.node:
            if home not in set(watched):
                return End(f"LEFT {last.node}", (f"for {to} on {home}, which is not on this machine",))
            return End(
                f"LOST between {last.node} and {home}", (f"it left {last.node} for {to}, and {home} never saw it",)
            )
        if not home:
            return End("LEAVES THE CLUSTER", (f"from {last.node} to {to}",))
        closed = silence(listening(last.destination), last.destination, last.port, self._protocol())
        if closed:
            pod = self._facts.pod_at(last.destination)
            return End("REFUSED", (f"in {f'pod {title(pod)}' if pod is not None else f'node {home}'} {closed}",))
        return End("ARRIVES", (f"at {to} on {home}",))

    def _packet(self, track: _Track, report: Report) -> None:
        source, destination, port = _first(_SOURCE, report), _first(_DESTINATION, report), _first(_PORT, report)
        track.destination, track.port = destination, int(port or 0)
        track.key = track.key or _key(report)
        wanted, to, number = self._wanted
        if not self._chosen and (destination, port) == (to, str(number)) and wanted in ("", source):
            self._chosen = track.key

    def _mine(self) -> list[_Track]:
        """What the nodes reported of the chosen packet, its destination's own node last."""
        tracks = [track for track in self._tracks.values() if self._chosen and track.key == self._chosen]
        return sorted(tracks, key=lambda track: self._facts.node_of(track.destination) == track.node)

    def _protocol(self) -> str:
        return self._chosen[0]


def hop_text(report: Report, facts: Facts) -> str:
    """One line of `nft monitor trace`, with a name after each known address."""
    words = " ".join(_COUNTER.sub("", report.rest).split())
    return f"{report.family} {report.table} {report.chain}: " + _ADDRESS.sub(lambda one: facts.named(one[0]), words)


def _key(report: Report) -> tuple[str, ...]:
    """What stays the same on the packet's way: protocol, identification, or length where it has no identification."""
    found = _IDENTITY.search(report.rest)
    number = next((one for one in found.groups() if one), "0") if found else "0"
    protocol = "udp" if " udp " in report.rest else "tcp"
    return (protocol, number, "" if number != "0" else _first(_LENGTH, report))


def _first(pattern: re.Pattern[str], report: Report) -> str:
    found = pattern.search(report.rest)
    return found[1] if found else ""
