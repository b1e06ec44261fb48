"""How long a run of Go still takes: from the size of each package's source, and how fast this machine has been. Pure.

The compile time of a package follows the size of its source, so the names that Go prints say which share is done. Links
take longer; their time was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Seconds of one core, measured with 3,395 packages of 124 MB: a package takes the first even if it is empty.
_PACKAGE = 0.12
_MEGABYTE = 1.6
_LINK = 2.0
_TRUSTED = 60.0  # seconds of these that weigh as much as what this machine has shown
_AT_ONCE = 2  # packages that were begun last and are still compiled


@dataclass(frozen=True, slots=True)
class Load:
    """What a run of Go has to do: the size of the source of each package to compile, and how many files to link."""

    packages: Mapping[str, int]
    links: int

    @property
    def seconds(self) -> float:
        """Of one core of the machine that was measured."""
        return self.of(self.packages) + self.links * _LINK

    def of(self, names: Iterable[str]) -> float:
        """Seconds for these packages, as above."""
        return sum(_PACKAGE + self.packages[name] * _MEGABYTE / 1e6 for name in names)


def remaining(load: Load, begun: Iterable[str], linked: int, elapsed: float, cores: int) -> float:
    """Seconds until the run ends, `elapsed` seconds after it began.

    `begun`: the packages that Go has named, in its order.
    """
    known = [name for name in begun if name in load.packages]
    done = load.of(known[:-_AT_ONCE]) + linked * _LINK
    pace = (elapsed + _TRUSTED / max(1, cores)) / (done + _TRUSTED)
    return max(0.0, load.seconds - done) * pace


def about(seconds: float) -> str:
    """The time for people, as roughly as it is known."""
    if seconds < 50:
        return f"about {max(10, round(seconds / 10) * 10)} s"
    return f"about {max(1, round(seconds / 60))} min"
