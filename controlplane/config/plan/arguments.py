"""Which flags of the control plane's programs a file may give. Pure."""

from __future__ import annotations

from collections.abc import Callable

from controlplane.config.plan.fields import matches

_FLAG = matches(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", "is not the name of a flag (without '--', in lower case)", 100)
# Flags of ours that hold the cluster together: a file cannot replace them.
FIXED = {
    "kube-apiserver": frozenset(
        {
            "advertise-address", "authentication-config", "client-ca-file", "encryption-provider-config", "etcd-cafile",
            "etcd-certfile", "etcd-keyfile", "etcd-servers", "kubelet-certificate-authority",
            "kubelet-client-certificate", "kubelet-client-key", "kubelet-preferred-address-types",
            "proxy-client-cert-file", "proxy-client-key-file", "requestheader-allowed-names",
            "requestheader-client-ca-file", "requestheader-extra-headers-prefix", "requestheader-group-headers",
            "requestheader-username-headers", "secure-port", "service-account-issuer", "service-account-key-file",
            "service-account-signing-key-file", "service-cluster-ip-range", "tls-cert-file", "tls-private-key-file",
        }
    ),
    "kube-controller-manager": frozenset(
        {
            "allocate-node-cidrs", "authentication-kubeconfig", "authorization-kubeconfig", "bind-address",
            "client-ca-file", "cluster-cidr", "cluster-signing-cert-file", "cluster-signing-key-file", "kubeconfig",
            "node-cidr-mask-size", "node-cidr-mask-size-ipv4", "node-cidr-mask-size-ipv6",
            "requestheader-client-ca-file", "root-ca-file", "service-account-private-key-file",
            "service-cluster-ip-range", "use-service-account-credentials",
        }
    ),
    "kube-scheduler": frozenset(
        {"authentication-kubeconfig", "authorization-kubeconfig", "bind-address", "kubeconfig"}
    ),
}  # fmt: skip


def argument_problem(program: str) -> Callable[[str], str]:
    """What is wrong with the name of a flag of this program, "" if nothing."""

    def problem(name: str) -> str:
        if name == "feature-gates":
            return "belongs under `featureGates`, which gives it to every component"
        if name in FIXED[program]:
            return "is set by nodewright and holds the cluster together"
        return _FLAG(name)

    return problem
