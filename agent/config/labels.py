"""Checks of a node's name, labels and addresses (apimachinery validation, kubelet apis)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)

# k8s.io/kubelet/pkg/apis/well_known_labels.go: what a kubelet may set in the namespaces of Kubernetes itself.
_ALLOWED = frozenset(
    {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    }
)
_ALLOWED_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OWN_NAMESPACES = ("kubernetes.io", "k8s.io")


def name_problem(name: str) -> str:
    """Why a Node cannot have this name, or ""."""
    if not name or len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        return "is not a DNS subdomain (RFC 1123)"
    return ""


def problems(labels: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the labels that a node is registered with."""
    for key, value in labels.items():
        namespace, _, name = key.rpartition("/")
        if not _NAME.fullmatch(name) or len(name) > 63 or ("/" in key and name_problem(namespace)):
            yield f"{key!r} is not a label key"
        elif value and (not _NAME.fullmatch(value) or len(value) > 63):
            yield f"{value!r} is not a label value ({key})"
        elif _within(namespace, _OWN_NAMESPACES) and not (key in _ALLOWED or _within(namespace, _ALLOWED_NAMESPACES)):
            yield f"{key!r}: a node may set only node.kubernetes.io/*, kubelet.kubernetes.io/* and well-known labels"


def node_ips(text: str) -> tuple[str, tuple[str, ...]]:
    """(problem, addresses) of --node-ip: one address, or one of each family; "0.0.0.0" and "::" ask for a family."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    try:
        parsed = [ipaddress.ip_address(word) for word in words]
    except ValueError as error:
        return str(error), ()
    if len(parsed) > 2 or len({address.version for address in parsed}) != len(parsed):
        return "at most one address per family", ()
    for address in parsed:
        if address.is_loopback or address.is_multicast or address.is_link_local:
            return f"{address} is a loopback, multicast or link-local address: nobody else reaches it", ()
        if address.is_unspecified and len(parsed) > 1:
            return f"{address} cannot be combined with another address", ()
    return "", tuple(str(address) for address in parsed)


def _within(namespace: str, owners: tuple[str, ...]) -> bool:
    return any(namespace == owner or namespace.endswith(f".{owner}") for owner in owners)
