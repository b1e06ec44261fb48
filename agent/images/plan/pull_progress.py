"""How far a pull is, from the blobs in the runtime's content store; when events report it, and with which text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.common.plan.sizes import part_of, size_of
from agent.images.model.pulls import Manifest, PullProgress
from nodelib.durations import roughly

REFRESH_EVERY = 5.0  # seconds; shorter pulls are never read
_WINDOW = 20.0  # seconds over which the rate is measured
_STILL = 10.0  # seconds without a byte before that is mentioned
_FIRST_REPORT, _GAP, _LONGEST_GAP = 10.0, 30.0, 300.0


@dataclass(frozen=True, slots=True)
class Source:
    """Where an image comes from, as in the labels of the runtime's blobs: `host` without its port."""

    host: str
    repository: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Track:
    """The recent history of a pull: (wall seconds, bytes done), and when the last byte arrived."""

    samples: tuple[tuple[float, int], ...] = ()
    moved: float = 0.0


def source_of(reference: str) -> Source:
    """The source of a reference; short names are those of Docker Hub (distribution/reference)."""
    name, _, digest = reference.partition("@")
    first, _, rest = name.partition("/")
    if not rest or not ("." in first or ":" in first or first == "localhost" or first.lower() != first):
        first, rest = "docker.io", name
    repository = rest.partition(":")[0]
    if first in ("docker.io", "index.docker.io"):
        first, repository = "docker.io", repository if "/" in repository else f"library/{repository}"
    host = first if first.endswith("]") else first.rpartition(":")[0] or first
    return Source(host.strip("[]"), repository, digest)


def chosen(source: Source, began: float, there: Iterable[Manifest], writing: Collection[str]) -> str:
    """The digest of the manifest that is being pulled since `began`; "" when it is not there yet or ambiguous.

    The store has no tag before its pull is over, so two images of one repository cannot be told apart while both are
    pulled.
    """
    found = list(there)
    named = [one for one in found if one.digest == source.digest]
    busy = [one for one in found if not one.refers.isdisjoint(writing)]
    fresh = [one for one in found if one.created >= began - 1]
    for some in (named, [one for one in busy if one in fresh], busy, fresh):
        if some:
            return some[0].digest if len(some) == 1 else ""
    return ""


def done(sizes: Mapping[str, int], writing: Mapping[str, int], present: Collection[str]) -> int:
    """Bytes of these blobs that have arrived."""
    return sum(size if blob in present else min(size, writing.get(blob, 0)) for blob, size in sizes.items())


def tracked(track: Track, at: float, bytes_there: int) -> Track:
    """The history with one more sample."""
    kept = tuple(one for one in track.samples if at - one[0] <= _WINDOW)
    stood = bool(track.samples) and track.samples[-1][1] == bytes_there
    return Track((*kept, (at, bytes_there)), track.moved if stood else at)


def progress(track: Track, total: int, now: float) -> PullProgress:
    """The progress of a pull that runs."""
    if not track.samples or not total:
        return PullProgress()
    (since, first), (until, last) = track.samples[0], track.samples[-1]
    rate = (last - first) / (until - since) if until - since >= 1 else None
    return PullProgress(done=last, total=total, rate=rate, still=now - track.moved)


def next_report(asked: float, reported: Sequence[float]) -> float:
    """When the next event reports the progress of a pull requested at `asked`, after those of `reported`.

    The pauses grow: a pod has a budget of events, and a long pull must not use it up.
    """
    if not reported:
        return asked + _FIRST_REPORT
    return reported[-1] + min(_GAP * len(reported), _LONGEST_GAP)


def progress_text(one: PullProgress) -> str:
    """For example "312 of 980 MiB, 21 MiB/s, about 32 s left"; "" when nothing is known."""
    if one.turn:
        return f"{_ordinal(one.turn)} in the queue of pulls ({one.at_once} at once)"
    if not one.total:
        return ""
    if one.done >= one.total:
        return f"{size_of(one.total)} are here, being unpacked"
    text = part_of(one.done, one.total)
    if one.still >= _STILL:
        return f"{text}, nothing came for {roughly(one.still)}"
    if one.rate:
        text += f", {size_of(one.rate)}/s, about {roughly((one.total - one.done) / one.rate)} left"
    return text


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
