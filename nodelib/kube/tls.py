"""The client's side of TLS with an API server, from what a kubeconfig says."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator

from nodelib import files
from nodelib.kube.access import ClusterAccess
from nodelib.tls_records import StrangerContext

_MOST_PEM = 1 << 20  # bytes of a certificate with what is above it, and of a key


def tls_context(access: ClusterAccess) -> ssl.SSLContext | bool:
    """The client's TLS context for `access`, False for plain http. Raises OSError for bad certificates."""
    if access.server.startswith("http://"):
        return False
    if access.ca_data and not access.ca_data.isascii():
        raise ssl.SSLError("the certificate authority in the kubeconfig is not PEM")
    context = _verifying(access.ca_data.decode("ascii") if access.ca_data else None)
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.cert_file and access.key_file:  # read here: OpenSSL would wait for a pipe without end
        cert, key = (files.bytes_of(one, _MOST_PEM) for one in (access.cert_file, access.key_file))
        _load(context, cert, key)
    elif access.cert_data and access.key_data:
        _load(context, access.cert_data, access.key_data)
    return context


def _verifying(authority: str | None) -> ssl.SSLContext:
    """As ssl.create_default_context(). Whoever is in between chooses the group before he has to show a certificate."""
    default = ssl.create_default_context(cadata=authority)
    context = StrangerContext.of(ssl.PROTOCOL_TLS_CLIENT)
    # As Go: an authority that is named is believed, also where another one stands above it.
    context.verify_flags = default.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_ciphers(":".join(one["name"] for one in default.get_ciphers() if one["kea"] != "kx-dhe"))
    if authority:
        context.load_verify_locations(cadata=authority)
    else:
        context.load_default_certs()
    return context


def _load(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    # ssl takes client certificates from files only (https://github.com/python/cpython/issues/60691); these are in
    # memory and have no name in any folder.
    with _in_memory("client-certificate", cert) as certificate, _in_memory("client-key", key) as secret:
        context.load_cert_chain(certificate, secret)


@contextlib.contextmanager
def _in_memory(name: str, content: bytes) -> Iterator[str]:
    """A path by which this process can open a file with this content, which is gone after the block."""
    handle = os.memfd_create(name, os.MFD_CLOEXEC)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{handle}"
