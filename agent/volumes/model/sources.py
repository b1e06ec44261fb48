"""What volumes are made from: API objects, tokens, trust anchors and certificates, asked for and fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.common.model.pods import Json
from nodelib.errors import NodewrightError

CONFIG_MAP = "configmaps"


SECRET = "secrets"


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A ConfigMap or Secret (kind: the plural of its path) in the pod's namespace."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class TokenNeed:
    """A bound service account token: one TokenRequest. `expiration` in seconds."""

    audience: str
    expiration: int


@dataclass(frozen=True, slots=True)
class TrustNeed:
    """Trust anchors by the name of one ClusterTrustBundle, or by signer and label selector (as canonical JSON)."""

    name: str = ""
    signer: str = ""
    selector: str = ""


@dataclass(frozen=True, slots=True)
class CertificateNeed:
    """A podCertificate source: where it stands in the pod, and what it asks for. `lifetime` in seconds, 0: not said."""

    volume: str
    index: int
    signer: str
    key_type: str
    lifetime: int = 0
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Credential:
    """A private key (PKCS #8) and its certificate chain, leaf first; both PEM. The key never shows in a log."""

    key: bytes = field(repr=False)
    chain: bytes


@dataclass(frozen=True, slots=True)
class VolumeSources:
    """All outside things that volumes of a pod are made from. An object that does not exist is None.

    A certificate that cannot be had is the reason why: only the volume that shows it is held up by that.
    """

    objects: Mapping[ObjectRef, Json | None] = field(default_factory=dict)
    tokens: Mapping[TokenNeed, str] = field(default_factory=dict)
    bundles: Mapping[TrustNeed, bytes | None] = field(default_factory=dict)
    claims: Mapping[str, Json] = field(default_factory=dict)
    certificates: Mapping[CertificateNeed, Credential | NodewrightError] = field(default_factory=dict)
