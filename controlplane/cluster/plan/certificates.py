"""Which keys, certificates and kubeconfigs a cluster needs, and when one must be issued again. Pure.

The set is kubeadm's (https://kubernetes.io/docs/setup/best-practices/certificates/) with one difference: the cluster's
authority signs every kubelet's serving certificate, so the API server can verify it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from controlplane.cluster.model import Cluster

POLICY_USER = "nodewright:network-policy"
BALANCER_USER = "nodewright:load-balancer"
STORAGE_USER = "nodewright:csi"
RENEW_BEFORE = 30 * 86400.0  # seconds before a certificate expires
Usage = Literal["ca", "server", "client", "peer"]


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate: `path` without suffix (.crt and .key are written), subject, the issuer's path, valid names."""

    path: str
    common_name: str
    issuer: str
    usage: Usage
    organization: str = ""
    dns: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """A kubeconfig file with the client certificate at `certificate`.

    It is embedded, unless `seen_at` says where the reader of the file finds it: a kubelet replaces an embedded one at
    once (kubeadm's first node has one), and one in files when it is due.
    """

    path: str
    certificate: str
    user: str
    server: str
    seen_at: str = ""
    cluster: str = "nodewright"  # its name in the file


def service_account_key(cluster: Cluster) -> str:
    """Path, without suffix, of the key that signs service account tokens."""
    return f"{cluster.pki_dir}/sa"


def authentication_config(cluster: Cluster) -> str:
    """The file with the issuers whose OIDC tokens the API server accepts."""
    return f"{cluster.pki_dir}/authentication.json"


def certificates(cluster: Cluster) -> tuple[Certificate, ...]:
    """Every certificate of the cluster, each issuer before those it signs."""
    pki = cluster.pki_dir
    ca, front, etcd = f"{pki}/ca", f"{pki}/front-proxy-ca", f"{pki}/etcd/ca"
    local = ("127.0.0.1", "::1")

    def client(name: str, common_name: str, organization: str = "", issuer: str = ca) -> Certificate:
        return Certificate(f"{pki}/{name}", common_name, issuer, "client", organization)

    found = [
        Certificate(ca, "kubernetes", ca, "ca", dns=("kubernetes",)),
        Certificate(front, "front-proxy-ca", front, "ca", dns=("front-proxy-ca",)),
        Certificate(etcd, "etcd-ca", etcd, "ca", dns=("etcd-ca",)),
        Certificate(f"{pki}/etcd/server", "etcd", etcd, "peer", dns=("localhost",), addresses=local),
        client("apiserver-etcd-client", "kube-apiserver-etcd-client", issuer=etcd),
        client("front-proxy-client", "front-proxy-client", issuer=front),
        client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "nodewright:kubelet-api"),
        client("admin", "kubernetes-admin", "system:masters"),
        client("controller-manager", "system:kube-controller-manager"),
        client("scheduler", "system:kube-scheduler"),
        api_server(cluster, ca),
    ]
    for node in cluster.nodes:
        own = f"{cluster.node_dir(node.name)}/kubernetes"
        found += [
            Certificate(f"{own}/pki/kubelet-client", f"system:node:{node.name}", ca, "client", "system:nodes"),
            Certificate(
                f"{own}/pki/kubelet",
                f"system:node:{node.name}",
                ca,
                "server",
                "system:nodes",
                (node.name, "localhost"),
                (*node.addresses, "127.0.0.1"),
            ),
            Certificate(f"{own}/pki/proxy-client", "system:kube-proxy", ca, "client"),
        ]
        if cluster.options.enforces_policies:
            found.append(Certificate(f"{own}/pki/policy-client", POLICY_USER, ca, "client"))
        if cluster.options.gives_addresses:
            found.append(Certificate(f"{own}/pki/loadbalancer-client", BALANCER_USER, ca, "client"))
        if cluster.options.provides_volumes:
            found.append(Certificate(f"{own}/pki/csi-client", STORAGE_USER, ca, "client"))
    return tuple(found)


def api_server(cluster: Cluster, issuer: str) -> Certificate:
    """The serving certificate, valid for every name and address that any client connects to."""
    service = "kubernetes.default.svc"
    return Certificate(
        f"{cluster.pki_dir}/apiserver",
        "kube-apiserver",
        issuer,
        "server",
        dns=(
            "kubernetes",
            "kubernetes.default",
            service,
            f"{service}.{cluster.domain}",
            "localhost",
            *(node.name for node in cluster.nodes),
        ),
        addresses=(
            cluster.kubernetes_service,
            "127.0.0.1",
            "::1",
            *cluster.host_addresses,
            *(address for node in cluster.nodes for address in node.addresses),
        ),
    )


def kubeconfigs(cluster: Cluster) -> tuple[Kubeconfig, ...]:
    """Every kubeconfig file of the cluster."""
    pki, url = cluster.pki_dir, cluster.api_url
    found = [
        Kubeconfig(cluster.admin_kubeconfig, f"{pki}/admin", cluster.context, url, cluster=cluster.context),
        Kubeconfig(
            f"{pki}/controller-manager.conf", f"{pki}/controller-manager", "system:kube-controller-manager", url
        ),
        Kubeconfig(f"{pki}/scheduler.conf", f"{pki}/scheduler", "system:kube-scheduler", url),
    ]
    for node in cluster.nodes:
        own = f"{cluster.node_dir(node.name)}/kubernetes"
        found += [
            Kubeconfig(
                f"{own}/kubelet.conf",
                f"{own}/pki/kubelet-client",
                f"system:node:{node.name}",
                url,
                seen_at="/etc/kubernetes/pki/kubelet-client",
            ),
            Kubeconfig(f"{own}/proxy.conf", f"{own}/pki/proxy-client", "system:kube-proxy", url),
        ]
        if cluster.options.enforces_policies:
            found.append(Kubeconfig(f"{own}/policy.conf", f"{own}/pki/policy-client", POLICY_USER, url))
        if cluster.options.gives_addresses:
            balancer = f"{own}/pki/loadbalancer-client"
            found.append(Kubeconfig(f"{own}/loadbalancer.conf", balancer, BALANCER_USER, url))
        if cluster.options.provides_volumes:
            found.append(Kubeconfig(f"{own}/csi.conf", f"{own}/pki/csi-client", STORAGE_USER, url))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Existing:
    """A certificate on disk: its issuer's key id, its names, and when it expires (Unix seconds)."""

    issuer_key: str
    common_name: str
    organization: str
    dns: frozenset[str]
    addresses: frozenset[str]
    not_after: float


def must_issue(wanted: Certificate, existing: Existing | None, issuer_key: str, now: float) -> str:
    """Why the certificate must be issued (again), "" to keep it."""
    if existing is None:
        return "missing"
    if existing.not_after - now < RENEW_BEFORE:
        return "expires soon"
    if wanted.usage != "ca" and existing.issuer_key != issuer_key:
        return "signed by another authority"
    if (existing.common_name, existing.organization) != (wanted.common_name, wanted.organization):
        return "another subject"
    if existing.dns != frozenset(wanted.dns) or existing.addresses != frozenset(wanted.addresses):
        return "other names"
    return ""
