"""What the HTTPS server is told of certificates, and what a client's says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the serving pair and the client CAs are, and what may be spoken.

    `preferred`: certificate and key in one file, which takes the place of the pair as soon as it is there.
    """

    cert_file: str
    key_file: str
    client_ca_file: str = ""
    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    preferred: str = ""


@dataclass(frozen=True, slots=True)
class ClientSubject:
    """Of a client certificate that TLS has verified; `fingerprint`: SHA-256 in hex."""

    name: str
    uid: str
    groups: tuple[str, ...]
    fingerprint: str


def self_signed_files(folder: str) -> tuple[str, str]:
    """Certificate and key that an unconfigured server keeps in its cert-dir; upstream's names."""
    return f"{folder}/kubelet.crt", f"{folder}/kubelet.key"
