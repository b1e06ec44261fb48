"""The server side of TLS: versions and ciphers by their Kubernetes names, and files that may change at any time.

Files are checked when a client connects (one stat each), never by a timer. When the new ones are not valid, the old
ones stay in use and the log says why. A client certificate is requested, and verified if the client sends one. Unlike
Go, OpenSSL ends the handshake when it comes from another CA: that client sees a TLS alert where upstream's kubelet
answers 401.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl

from agent.server.model import TlsFiles
from nodelib.errors import Invalid
from nodelib.tls_records import StrangerContext

log = logging.getLogger(__name__)

# Settings below 1.2 still get 1.2, the lowest version that OpenSSL speaks by default.
_VERSIONS = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS10": ssl.TLSVersion.TLSv1_2,
    "VersionTLS11": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
_CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}
# As in Go, the suites of TLS 1.3 are always on.
_ALWAYS = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
# Names and OpenSSL's names by number, in the order in which one is chosen: every client knows the first.
_CURVES = {
    23: ("CurveP256", "prime256v1"),
    29: ("X25519", "X25519"),
    24: ("CurveP384", "secp384r1"),
    25: ("CurveP521", "secp521r1"),
    4588: ("X25519MLKEM768", "X25519MLKEM768"),
    4587: ("SecP256r1MLKEM768", "SecP256r1MLKEM768"),
    4589: ("SecP384r1MLKEM1024", "SecP384r1MLKEM1024"),
}
_DEFAULT = ":".join(name for key, name in _CIPHERS.items() if ("GCM" in key and "ECDHE" in key) or "CHACHA20" in key)


class ServingTls:
    """`context` is for the listening socket. It gives each new connection the newest valid context."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamp = self._stamps()
        self._current = _make(files)
        self.context = _make(files)
        if len(set(files.curves)) > 1:
            log.warning("of tlsCurvePreferences only one is offered: Python's ssl cannot be told more of them")
        # OpenSSL calls this for each ClientHello, with or without a server name.
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        stamp = self._stamps()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._current = _make(self._files)
                log.info("serving certificate or client CA changed: loaded the new one")
            except Invalid as error:
                log.error("%s; the previous certificates stay in use", error)
        connection.context = self._current

    def _stamps(self) -> tuple[tuple[int, int, int], ...]:
        files = self._files
        paths = (files.cert_file, files.key_file, files.client_ca_file, files.preferred)
        return tuple(_stamp(path) for path in paths if path)


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _make(files: TlsFiles) -> ssl.SSLContext:
    context = StrangerContext.of(ssl.PROTOCOL_TLS_SERVER)
    if files.min_version not in _VERSIONS:
        raise Invalid(
            f"tlsMinVersion {files.min_version!r} is not supported",
            step="set up the kubelet server",
            action="Use VersionTLS12 or VersionTLS13.",
        )
    context.minimum_version = _VERSIONS[files.min_version]
    context.set_ciphers(_ciphers(files.cipher_suites))
    if files.curves:
        _limit_curves(context, files.curves)
    context.options |= ssl.OP_NO_COMPRESSION
    context.num_tickets = 0  # a resumed session would survive a change of the client CAs
    exists = bool(files.preferred) and os.path.exists(files.preferred)
    cert, key = (files.preferred, files.preferred) if exists else (files.cert_file, files.key_file)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(
            str(error),
            obj=f"{cert}, {key}",
            step="load the serving certificate",
            action="Check that both files are PEM, belong together and are readable.",
        ) from error
    if files.client_ca_file:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: also of authorities below others
        try:
            context.load_verify_locations(files.client_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise Invalid(
                str(error), obj=files.client_ca_file, step="load the client CAs", action="Give a PEM bundle of CAs."
            ) from error
    return context


def _limit_curves(context: ssl.SSLContext, numbers: tuple[int, ...]) -> None:
    """Offer one of these: set_ecdh_curve() takes one only, and what was not named must never be offered."""
    action = f"Choose from {', '.join(f'{number} ({name})' for number, (name, _) in _CURVES.items())}."
    unknown = [str(number) for number in numbers if number not in _CURVES]
    if not unknown:
        for number, (_, name) in _CURVES.items():
            with contextlib.suppress(ValueError):  # this OpenSSL does not have it
                if number in numbers:
                    return context.set_ecdh_curve(name)
    raise Invalid(
        f"tlsCurvePreferences {', '.join(unknown or map(str, numbers))}: not known to the TLS library",
        step="set up the kubelet server",
        action=action,
    )


def _ciphers(names: tuple[str, ...]) -> str:
    unknown = [name for name in names if name not in _CIPHERS and name not in _ALWAYS]
    if unknown:
        raise Invalid(
            f"tlsCipherSuites {', '.join(unknown)}: not known",
            step="set up the kubelet server",
            action=f"Choose from {', '.join(_CIPHERS)}.",
        )
    return ":".join(_CIPHERS[name] for name in names if name in _CIPHERS) or _DEFAULT
