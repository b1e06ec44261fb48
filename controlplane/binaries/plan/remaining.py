"""How long a run of Go still takes: from the size of each package's source, and how fast this machine has been. Pure.

The compile time of a package follows the size of its source, so the names that Go prints say which share is done. Links
take longer; their time was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Measured on two cores of the machine in docs/benchmarks.md; only where Go has hardly begun do they decide.
_BYTES_A_SECOND = 300_000.0
_LINK = 6.0  # seconds
_TRUSTED = 30.0  # seconds of these that weigh as much as what this machine has shown
_AT_ONCE = 2  # packages that were begun last and are still compiled


@dataclass(frozen=True, slots=True)
class Load:
    """What a run of Go has to do: the size of the source of each package to compile, and how many files to link."""

    packages: Mapping[str, int]
    links: int

    @property
    def seconds(self) -> float:
        """On the machine that was measured."""
        return sum(self.packages.values()) / _BYTES_A_SECOND + self.links * _LINK


def remaining(load: Load, begun: Iterable[str], linked: int, elapsed: float, cores: int) -> float:
    """Seconds until the run ends, `elapsed` seconds after it began.

    `begun`: the packages that Go has named, in its order.
    """
    known = [name for name in begun if name in load.packages]
    done = sum(load.packages[name] for name in known[:-_AT_ONCE]) / _BYTES_A_SECOND + linked * _LINK
    pace = (elapsed + _TRUSTED * 2 / max(1, cores)) / (done + _TRUSTED)
    return max(0.0, load.seconds - done) * pace


def about(seconds: float) -> str:
    """The time for people, as roughly as it is known."""
    if seconds < 50:
        return f"about {max(10, round(seconds / 10) * 10)} s"
    return f"about {max(1, round(seconds / 60))} min"
