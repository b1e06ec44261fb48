"""The client's side of TLS with an API server, from what a kubeconfig says."""

from __future__ import annotations

import os
import ssl

from nodelib.kube.access import ClusterAccess
from nodelib.tls_records import StrangerContext


def tls_context(access: ClusterAccess) -> ssl.SSLContext | bool:
    """The client's TLS context for `access`, False for plain http. Raises ssl.SSLError for bad certificates."""
    if access.server.startswith("http://"):
        return False
    if access.ca_data and not access.ca_data.isascii():
        raise ssl.SSLError("the certificate authority in the kubeconfig is not PEM")
    context = _verifying(access.ca_data.decode("ascii") if access.ca_data else None)
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.cert_file and access.key_file:
        context.load_cert_chain(access.cert_file, access.key_file)
    elif access.cert_data and access.key_data:
        _load_inline(context, access.cert_data, access.key_data)
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


def _load_inline(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    # ssl takes client certificates from files only (https://github.com/python/cpython/issues/60691); this one is in
    # memory and has no name in any folder.
    handle = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
    with os.fdopen(handle, "wb") as file:
        file.write(cert + b"\n" + key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{handle}")
