"""Image pulls: their credentials, the records of who may use an image without asking its registry, their progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodelib.json_values import Json

NOT_FOUND = "not found"  # what is wrong with a Secret that is not there


@dataclass(frozen=True, slots=True, order=True)
class SecretSource:
    """A pull secret, with the `hash` of the credential in it."""

    namespace: str
    name: str
    uid: str
    hash: str


@dataclass(frozen=True, slots=True, order=True)
class AccountSource:
    """A service account for whose pods a plugin gave a credential."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PullCredential:
    """A CRI AuthConfig and whose it is; None: the node's own, which every pod may use."""

    auth: Json = field(repr=False)
    source: SecretSource | AccountSource | None = None


@dataclass(frozen=True, slots=True)
class UnreadSecret:
    """A Secret of a pod's imagePullSecrets that no credential came of, and why; "" where that is not known."""

    name: str
    problem: str = NOT_FOUND


@dataclass(frozen=True, slots=True)
class Account:
    """A pod's service account as the API has it."""

    source: AccountSource
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AccountToken:
    """A token of a service account for one pod. `seconds`: how long it is valid from now on."""

    text: str = field(repr=False)
    seconds: float


@dataclass(frozen=True, slots=True)
class Access:
    """Who the registry has let pull the image. `everybody`: without a credential, or with the node's own."""

    everybody: bool = False
    secrets: tuple[SecretSource, ...] = ()
    accounts: tuple[AccountSource, ...] = ()


@dataclass(frozen=True, slots=True)
class PulledRecord:
    """An image the agent has pulled: `image_id` of the runtime, `updated` in wall seconds, `access` by repository."""

    image_id: str
    updated: float
    access: Mapping[str, Access] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """An image's manifest in the runtime's store: when it got there (wall seconds), and the blobs that it refers to."""

    digest: str
    created: float
    refers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PullProgress:
    """How far a pull is. `turn`: its place in the queue, 0: it is one of the `at_once` pulls that run.

    `done`, `total`: bytes; `total` 0: not known. `rate`: bytes a second, None: not known yet. `still`: seconds since
    the last byte arrived.
    """

    turn: int = 0
    at_once: int = 0
    done: int = 0
    total: int = 0
    rate: float | None = None
    still: float = 0.0
