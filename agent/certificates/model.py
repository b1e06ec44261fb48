"""Certificates that this node requests from the cluster: what they must contain, and what they do."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Template:
    """The subject and SANs that a certificate must have. Addresses in canonical text."""

    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """The contents of a certificate. Times in seconds since the epoch."""

    subject: Template
    not_before: float
    not_after: float


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its chain and key in one PEM file at `path`, stored at `since` (seconds since the epoch)."""

    path: str
    leaf: Leaf
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class KeyAndRequest:
    """A private key and the PKCS #10 request signed with it, both in PEM."""

    key: bytes = field(repr=False)
    request: bytes
