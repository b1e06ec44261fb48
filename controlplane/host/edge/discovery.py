"""Requests to a cluster that this machine does not know yet."""

from __future__ import annotations

import asyncio
import base64
import socket
from typing import Any

import yaml
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from controlplane.host.model import Authority
from nodelib import safe_yaml
from nodelib.errors import Permanent
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import ApiError, KubeClient
from nodelib.kube.pins import pin_of

_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
USER_AGENT = "nodewright-join"
_NAMED_WITHIN = 20.0  # seconds: a resolver asks each of its servers twice


async def cluster_info(server: str, ca_data: bytes | None) -> dict[str, Any]:
    """The public ConfigMap cluster-info. Without `ca_data` anybody may have answered: check its signature.

    Raises Permanent when the cluster publishes none, ApiUnreachable when there is no answer.
    """
    access = ClusterAccess(server, ca_data=ca_data, insecure=ca_data is None)
    try:
        async with KubeClient(access, user_agent=USER_AGENT) as client:
            return await client.get(_INFO)
    except ApiError as error:
        raise Permanent(
            f"the cluster does not publish cluster-info: {error.message}",
            obj=server,
            step="discover the cluster",
            action="Give its authority with --ca-file FILE, or an admin kubeconfig with --kubeconfig FILE.",
        ) from error


async def resolves(name: str) -> bool:
    """Whether this machine knows an address for `name`."""
    try:
        async with asyncio.timeout(_NAMED_WITHIN):
            await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return False
    return True


def authority_of(text: str) -> bytes:
    """The authority (PEM) in the kubeconfig of cluster-info, which has a cluster and no user. Raises Permanent."""
    try:
        return base64.b64decode(safe_yaml.load(text)["clusters"][0]["cluster"]["certificate-authority-data"])
    except (yaml.YAMLError, KeyError, IndexError, TypeError, ValueError) as error:
        raise _no_authority(f"names no authority: {error!r}", "kube-public/cluster-info") from error


def certificates(pem: bytes) -> list[Authority]:
    """All of them, as there are several while an authority is replaced. Raises Permanent."""
    try:
        found = x509.load_pem_x509_certificates(pem)
        return [Authority(pin_of(one), one.public_bytes(serialization.Encoding.PEM)) for one in found]
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_authority(f"no certificate: {error}", "authority of the cluster") from error


def _no_authority(words: str, obj: str) -> Permanent:
    action = "Correct it there, if that is the cluster; or give its authority with --ca-file FILE."
    return Permanent(words, obj=obj, step="discover the cluster", action=action)
