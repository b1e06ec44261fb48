"""Explains why TLS with an API server failed, and what to do about it.

Codes are OpenSSL's X509_V_ERR_* (https://docs.openssl.org/3.0/man3/X509_STORE_CTX_get_error/).
"""

from __future__ import annotations

import ssl

_CLOCK = "Set this machine's clock (timedatectl, chronyc tracking) or renew the server's certificate"
_CA = (
    "The certificate authority in the kubeconfig did not sign it: take the cluster's own"
    " (ConfigMap kube-public/cluster-info, or /etc/kubernetes/pki/ca.crt of a control plane), and check that nothing"
    " else answers at that address"
)
_NAME = "Use an address or name that the certificate is for, or renew it with this one (kubeadm: apiServer.certSANs)"
_UNSIGNED = (18, 19, 20, 21)
_ADVICE = {9: _CLOCK, 10: _CLOCK, **dict.fromkeys(_UNSIGNED, _CA), 62: _NAME, 64: _NAME}


def explain(error: BaseException) -> tuple[str, str]:
    """(what is wrong with the server's certificate, what to do) after a failed call; ("", "") for another failure."""
    found = _verification(error)
    if found is None:
        return "", ""
    return f"its certificate is refused: {found.verify_message}", _ADVICE.get(found.verify_code, _CA)


def is_unsigned(error: BaseException) -> bool:
    """Whether a call failed because no authority that is believed has signed the server's certificate."""
    found = _verification(error)
    return found is not None and found.verify_code in _UNSIGNED


def _verification(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    seen = 0
    while error is not None and seen < 8:
        # aiohttp's own class derives from ssl's, but only the inner one has the code.
        if isinstance(error, ssl.SSLCertVerificationError) and hasattr(error, "verify_code"):
            return error
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None
