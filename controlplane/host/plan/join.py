"""What `join` decides: what the cluster runs already, and what this node's daemons read. Pure."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yaml

from controlplane.cluster.plan.manifests import POLICY_RULES, proxy_right
from controlplane.cluster.plan.node_files import CONTAINERD_SOCKET
from controlplane.cluster.plan.tracing import flags_of
from controlplane.host.model import Addons
from nodelib import safe_yaml
from nodelib.errors import Invalid, WrongUsage
from nodelib.json_values import Json, object_or_empty, objects_in

# Names of the DaemonSets that are known to bring a pod network.
NETWORKS = ("kindnet", "kube-flannel-ds", "kube-flannel", "calico-node", "cilium", "weave-net", "kube-router", "antrea")
PROXIES = ("kube-proxy",)
GROUP = "system:bootstrappers:nodewright"
KUBELET_CONF, BOOTSTRAP_CONF = "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf"
CA_FILE = "/etc/kubernetes/pki/ca.crt"
CONFIG, DROP_INS = "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/config.d"
PROXY_CONFIG = "/etc/kubernetes/nodewright-proxy.yaml"
# What a kubelet that somebody else has started here works with, and a control plane: join() would write over some of
# it, and leave() remove the rest, with all pods.
OF_OTHERS = (KUBELET_CONF, BOOTSTRAP_CONF, CONFIG, "/etc/kubernetes/pki/ca.key")
OUR_NETWORK = "--pod-network=nodewright"  # of the agent
CONFIG_MAPS = ("kubelet-config", "kubeadm-config")
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission that a daemon of the node needs."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"

    def review(self) -> Json:
        """The SelfSubjectAccessReview that asks for it."""
        attributes = {"verb": self.verb, "resource": self.resource, "group": self.group}
        spec = {"resourceAttributes": attributes}
        return {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}


def override_of(node: str, hostname: str) -> tuple[str, ...]:
    """The agent's flag for the node's name; none when it is the host's own, which the agent takes by itself."""
    return () if node == hostname else (f"--hostname-override={node}",)


def endpoint_name(configuration: Json) -> str:
    """The name in the ClusterConfiguration's controlPlaneEndpoint (kind's nodes have one), "" if it is none."""
    given = configuration.get("controlPlaneEndpoint")
    try:
        host = urlsplit(f"//{given}").hostname or "" if isinstance(given, str) else ""
    except ValueError:  # of brackets: no kube-proxy finds that either
        return ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host
    return ""


def hosts_line(server: str, name: str) -> str:
    """The line of /etc/hosts that gives `name` the address of the API server at the URL `server`."""
    return f"{urlsplit(server).hostname} {name}"


def addons(names: Iterable[str]) -> Addons:
    """Which of these DaemonSets bring a pod network and a proxy."""
    given = list(names)
    network = next((name for name in given if name in NETWORKS or name.startswith("kindnet")), "")
    return Addons(network, next((name for name in given if name in PROXIES), ""))


def resolve(network: str, proxy: str, found: Addons | None) -> tuple[str, str]:
    """Which (pod network, proxy) to run, "nodewright" or "none" each; "auto" is decided by what was `found`.

    While nothing is known of the cluster (None) it is "none", so that its DaemonSets are not disturbed.
    """
    if network == "auto":
        network = "none" if found is None or found.network else "nodewright"
    if proxy == "auto":
        proxy = "none" if found is None or found.proxy else "nodewright"
    return network, proxy


def check_policies(network: str, found: Addons | None) -> None:
    """Raises Invalid when policies are to be enforced for pods of a network that is not ours."""
    if found is not None and network != "nodewright":
        raise Invalid(
            f"the node's pods get their network from {found.network or 'elsewhere'}, whose policies are its own matter",
            obj="--network-policy",
            step="look for the cluster's pod network",
            action="Leave it out; where our pod network is wanted, give --pod-network nodewright.",
        )


def permissions(network: str, proxy: str, policies: bool = False) -> list[Permission]:
    """What our daemons must read with the node's credentials, beyond upstream's role for nodes."""
    wanted = [Permission("list", "nodes")] if network == "nodewright" else []
    if policies:
        wanted += [Permission("list", "networkpolicies", "networking.k8s.io"), Permission("list", "pods")]
    if proxy == "nodewright":
        wanted.append(Permission("list", "endpointslices", "discovery.k8s.io"))
    return wanted


def daemon_sets_of(pods: Iterable[Json]) -> list[str]:
    """Names of the DaemonSets that own the pods."""
    owners = [owner for pod in pods for owner in objects_in(pod["metadata"].get("ownerReferences"))]
    return [str(owner.get("name")) for owner in owners if owner.get("kind") == "DaemonSet"]


def ready_condition(node: Json) -> Json:
    """Its condition Ready, an empty object if it has none."""
    conditions = objects_in(object_or_empty(node.get("status")).get("conditions"))
    return next((one for one in conditions if one.get("type") == "Ready"), {})


def node_problem(node: Json | None, name: str) -> str:
    """Why a node of this name cannot join, "" if it can."""
    if ready_condition(node or {}).get("status") == "True":
        return f"the cluster already has a node {name} that is Ready"
    return ""


def runtime_socket(given: str) -> str:
    """The path in `given`, a path or a URL of a unix socket; "" says containerd's. Raises Invalid."""
    path = given.removeprefix("unix://") or CONTAINERD_SOCKET
    if not path.startswith("/"):
        raise WrongUsage(
            "is not the socket of a container runtime",
            obj=f"--cri-socket {given}",
            action="Name its path, such as unix:///var/run/crio/crio.sock.",
        )
    return path


def drop_in(*, systemd: bool, runtime: str = CONTAINERD_SOCKET) -> str:
    """Settings of this machine that override the cluster's KubeletConfiguration. `runtime`: a path."""
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd" if systemd else "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "resolvConf": "/run/systemd/resolve/resolv.conf" if systemd else "/etc/resolv.conf",
        "rotateCertificates": True,
        "containerRuntimeEndpoint": f"unix://{runtime}",
    }
    return json.dumps(config, indent=1) + "\n"


def socket_in(drop_in: str) -> str:
    """The path of the runtime's socket in the text of a drop_in(); containerd's where it has none."""
    try:
        found = object_or_empty(safe_yaml.load(drop_in)).get("containerRuntimeEndpoint")
    except yaml.YAMLError:
        found = None
    return runtime_socket(found if isinstance(found, str) else "")


def plain_config(dns: str, domain: str) -> str:
    """KubeletConfiguration for a cluster that publishes none (kube-system/kubelet-config)."""
    config: Json = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": CA_FILE}},
        "clusterDomain": domain,
        **({"clusterDNS": [dns]} if dns else {}),
    }
    return json.dumps(config, indent=1) + "\n"


def proxy_config(node: str, cluster_cidr: str, mode: str) -> str:
    """KubeProxyConfiguration of our proxy, which uses the node's own certificate."""
    config: Json = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode or "iptables",
        "hostnameOverride": node,
        "clientConnection": {"kubeconfig": KUBELET_CONF},
        "clusterCIDR": cluster_cidr,
        "conntrack": {"maxPerCore": 0, "min": 0},
    }
    return json.dumps(config, indent=1) + "\n"


def cleanups(programs: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """The command lines by which daemons that have ended remove what they made in the kernel, and the pod network's
    configuration. `programs`: the command line of each that join() started, by its name.

    All of it outlives them, so that a restart disturbs nobody: packets to Services would go on to pods of the cluster,
    policies go on to refuse some, and a runtime ask a pod network that nobody serves.
    """
    found: list[tuple[str, ...]] = [
        (programs[name][0], "-m", name, "--cleanup") for name in ("policy", "proxy") if programs.get(name)
    ]
    agent = tuple(programs.get("agent") or ())
    if OUR_NETWORK in agent:
        found.append(tuple("--pod-network=cleanup" if word == OUR_NETWORK else word for word in agent))
    return found


def tracing_flags(kubelet: str) -> tuple[str, ...]:
    """Of proxy and policy daemon: they trace if the cluster's KubeletConfiguration says that its nodes do."""
    return flags_of(_field(kubelet, "tracing"))


def _field(kubelet: str, name: str) -> object:
    try:
        return object_or_empty(safe_yaml.load(kubelet)).get(name)
    except yaml.YAMLError:
        return None  # the agent says what is wrong with it


def dns_servers(kubelet: str) -> tuple[str, ...]:
    """The cluster's DNS servers, by the KubeletConfiguration of its nodes."""
    found = _field(kubelet, "clusterDNS")
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def rights_text(policies: bool = False) -> str:
    """rights() as text for `kubectl apply -f -`."""
    head = f"""# What nodes that join with `nodewright join` need beyond upstream's roles. An admin applies it once.
# A token of kubeadm's default group joins then; without kubeadm's own roles, make the token for the group below:
#   kubeadm token create --print-join-command --groups {GROUP}
"""
    return head + json.dumps({"apiVersion": "v1", "kind": "List", "items": rights(policies)}, indent=1) + "\n"


def rights(policies: bool = False) -> list[Json]:
    """What joining nodes need beyond upstream's roles; applied by an admin's join, or before a join by token.

    `policies`: every node may then read all pods, since a policy may select any of them. Upstream's nodes may not.
    """
    more = []
    if policies:
        name = "nodewright:network-policy-nodes"
        more = [_object("ClusterRole", name, rules=POLICY_RULES), _binding(name, name, "system:nodes")]
    read_nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
    names = list(CONFIG_MAPS)
    read_config = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": names, "verbs": ["get"]}
    base = "system:certificates.k8s.io:certificatesigningrequests"
    return [
        _object("ClusterRole", "nodewright:pod-network", rules=[read_nodes]),
        _binding("nodewright:pod-network", "nodewright:pod-network", "system:nodes"),
        proxy_right(),
        _binding("nodewright:bootstrap", "system:node-bootstrapper", GROUP),
        _binding("nodewright:approve", f"{base}:nodeclient", GROUP),
        _binding("nodewright:renew", f"{base}:selfnodeclient", "system:nodes"),
        _object("ClusterRole", "nodewright:join", rules=[read_config, read_nodes]),
        _binding("nodewright:join", "nodewright:join", GROUP),
        *more,
    ]


def token_secret(identity: str, secret: str, expires: str) -> Json:
    """The Secret of a bootstrap token (type bootstrap.kubernetes.io/token)."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"bootstrap-token-{identity}", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": identity,
            "token-secret": secret,
            "expiration": expires,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": GROUP,
            "description": "made by nodewright join",
        },
    }


def _object(kind: str, name: str, **more: Any) -> Json:
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": {"name": name}, **more}


def _binding(name: str, role: str, group: str) -> Json:
    return _object(
        "ClusterRoleBinding",
        name,
        roleRef={"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        subjects=[{"apiGroup": _RBAC, "kind": "Group", "name": group}],
    )
