"""Facts of image pulls: with whose credentials an image was had, and who may use it without asking its registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.pods import Json


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
