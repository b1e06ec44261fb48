"""The self-signed serving certificate in cert-dir, and the subjects of client certificates.

Certificates are read with the standard library. The library that can sign takes 8 MB of memory, so signing runs in a
process of its own (self_signed.py).
"""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agent.server.model import ClientSubject, self_signed_files
from nodelib.command import CommandError, run_sync
from nodelib.errors import Invalid

_REMAINING = 30 * 86400.0  # seconds that a certificate must still be valid for
_UID = "1.3.6.1.4.1.57683.2"


def ensure_self_signed(folder: str, names: Sequence[str], addresses: Sequence[str]) -> tuple[str, str]:
    """Paths of kubelet.crt and kubelet.key in `folder`, created when missing, expiring or not valid for these names.

    Follows upstream's initialization of a serving certificate that is not configured; upstream, however, keeps an
    expired one. Blocking. Raises Invalid when the folder cannot be written.
    """
    cert_path, key_path = self_signed_files(folder)
    if not _serves(cert_path, key_path, names, addresses):
        try:
            run_sync([sys.executable, "-m", "agent.server.edge.self_signed", folder, *names, *addresses])
        except CommandError as error:
            raise Invalid(
                error.stderr.decode(errors="replace").strip() or error.message,
                obj=folder,
                step="write the self-signed serving certificate",
                action="Make the folder writable or set --tls-cert-file and --tls-private-key-file.",
            ) from error
    return cert_path, key_path


def _serves(cert_path: str, key_path: str, names: Sequence[str], addresses: Sequence[str]) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert_path, key_path)  # fails when the key does not belong to the certificate
        context.load_verify_locations(cert_path)
    except (OSError, ValueError):
        return False
    for certificate in context.get_ca_certs():  # a self-signed one is its own CA
        sans = certificate.get("subjectAltName", ())
        served = {_canonical(str(entry[1])) for entry in sans}
        lasts = ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time() > _REMAINING
        if lasts and {_canonical(one) for one in (*names, *addresses)} <= served:
            return True
    return False


def _canonical(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


def subject_of(der: bytes, decoded: Mapping[str, Any]) -> ClientSubject:
    """The subject of a client certificate that TLS has verified; `decoded` is the dictionary of getpeercert()."""
    entries = [(key, str(value)) for parts in decoded.get("subject", ()) for key, value in parts]
    names = [value for key, value in entries if key == "commonName"]
    uids = [value for key, value in entries if key == _UID]
    groups = tuple(value for key, value in entries if key == "organizationName")
    # Go's pkix.Name keeps the last common name of a subject.
    name = names[-1] if names else ""
    return ClientSubject(name, uids[0] if len(uids) == 1 else "", groups, hashlib.sha256(der).hexdigest())
