"""Certificates that this node asks the cluster for: what is wanted, and what one says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Template:
    """What a certificate must be for. Addresses in their canonical text."""

    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a certificate says. Times in seconds since the epoch."""

    subject: Template
    not_before: float
    not_after: float


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its chain and its key, both in one PEM file at `path`; `since` when it is there."""

    path: str
    leaf: Leaf
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class KeyAndRequest:
    """A new private key and the PKCS #10 request that it has signed, both in PEM."""

    key: bytes
    request: bytes
