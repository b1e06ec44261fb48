"""A DNS answer and what pods have learnt from such, frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from policy.model import Address


@dataclass(frozen=True, slots=True)
class Answer:
    """What a pod has been told: the name that it asked for, in lower case, and addresses with their seconds to live."""

    name: str
    addresses: tuple[tuple[Address, int], ...]


class Key(NamedTuple):
    """An address that a pod has been given for a name of a set."""

    set: str
    pod: Address
    address: Address


class Learnt(NamedTuple):
    """For so many seconds the pod may begin connections to the address."""

    key: Key
    seconds: float
