"""The cipher suites that a kubelet may offer, by their names in Kubernetes."""

from __future__ import annotations

# CIS Kubernetes Benchmark 4.2.12: forward secrecy and authenticated encryption. Those of TLS 1.3 are always on.
STRONG_CIPHERS = (
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
)
