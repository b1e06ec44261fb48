"""Facts of image pulls: with whose credentials an image was had, and who may use it without asking its registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.common.model.pods import Json


@dataclass(frozen=True, slots=True, order=True)
class SecretSource:
    """A pull secret; `hash` of the credential in it."""

    namespace: str
    name: str
    uid: str
    hash: str


@dataclass(frozen=True, slots=True)
class PullCredential:
    """CRI AuthConfig, and the secret that it is from; None: the node's own, for every pod on it."""

    auth: Json
    source: SecretSource | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """Who has shown that the registry lets it have the image. `everybody`: it took no credential, or the node's own."""

    everybody: bool = False
    secrets: tuple[SecretSource, ...] = ()


@dataclass(frozen=True, slots=True)
class PulledRecord:
    """An image that the agent has pulled: `image_id` as the runtime knows it, access by repository."""

    image_id: str
    updated: float
    access: Mapping[str, Access] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """An image's manifest in the runtime's store: when it came (wall seconds), the blobs that it refers to."""

    digest: str
    created: float
    refers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PullFigures:
    """How far a pull is. `turn`: which of those that wait for one of `at_once` places, 0: it has one.

    Bytes; `total` 0: not known. `rate`: bytes a second, None: not known yet. `still`: seconds since anything came.
    """

    turn: int = 0
    at_once: int = 0
    done: int = 0
    total: int = 0
    rate: float | None = None
    still: float = 0.0
