"""What volumes are made from: references to objects, tokens, trust anchors and certificates, and what was fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodelib.errors import NodewrightError
from nodelib.json_values import Json

CONFIG_MAP = "configmaps"
SECRET = "secrets"

# What a pod may name. Upstream has no limit: a request, and for most of them a watch, for as many as 1.5 MiB of names.
MOST_OBJECTS = 1000  # ConfigMaps and Secrets
MOST_OBJECTS_OF_NAMESPACE = 5000  # of all pods of a namespace on this node
MOST_CLAIMS = 1000
MOST_TOKENS = 100
MOST_BUNDLES = 100  # by name, or by signer and selector: each holds all certificates that it finds
MOST_CERTIFICATES = 100
MOST_CERTIFICATES_OF_NAMESPACE = 500  # of all pods of a namespace on this node


def create_command(kind: str, namespace: str, name: str) -> str:
    """How a user creates a ConfigMap or Secret that is missing."""
    what = "configmap" if kind == CONFIG_MAP else "secret generic"
    return f"`kubectl create {what} {name} -n {namespace} --from-literal=KEY=VALUE`"


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A ConfigMap or Secret (kind: the plural of its path) in the pod's namespace."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A service account token bound to the pod. `expiration` in seconds."""

    audience: str
    expiration: int


@dataclass(frozen=True, slots=True)
class TrustBundleProjection:
    """Trust anchors by the name of one ClusterTrustBundle, or by signer and label selector (as canonical JSON)."""

    name: str = ""
    signer: str = ""
    selector: str = ""


@dataclass(frozen=True, slots=True)
class CertificateProjection:
    """A podCertificate source and its place in the pod. `lifetime` in seconds, 0: not specified."""

    volume: str
    index: int
    signer: str
    key_type: str
    lifetime: int = 0
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SourceRefs:
    """References to everything outside the pod that its volumes are made from."""

    objects: frozenset[ObjectRef] = frozenset()
    tokens: frozenset[TokenRequest] = frozenset()
    bundles: frozenset[TrustBundleProjection] = frozenset()
    claims: frozenset[str] = frozenset()
    certificates: frozenset[CertificateProjection] = frozenset()


@dataclass(frozen=True, slots=True)
class Credential:
    """A private key (PKCS #8) and its certificate chain, leaf first; both PEM. repr() leaves the key out."""

    key: bytes = field(repr=False)
    chain: bytes


@dataclass(frozen=True, slots=True)
class FoundClaim:
    """A PersistentVolumeClaim and the PersistentVolume that it names; None: it names none, or there is none."""

    claim: Json
    volume: Json | None = None


@dataclass(frozen=True, slots=True)
class VolumeSources:
    """What the volumes of a pod are made from, as fetched. An object that does not exist is None.

    In place of a certificate that could not be obtained stands the error: it concerns only the volume that shows it.
    """

    objects: Mapping[ObjectRef, Json | None] = field(default_factory=dict, repr=False)
    tokens: Mapping[TokenRequest, str] = field(default_factory=dict, repr=False)
    bundles: Mapping[TrustBundleProjection, bytes | None] = field(default_factory=dict)
    claims: Mapping[str, FoundClaim] = field(default_factory=dict)
    certificates: Mapping[CertificateProjection, Credential | NodewrightError] = field(default_factory=dict)
