"""The command line of every daemon of a cluster. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.cluster.model import API_PORT, CONTROL_PLANE, PORTS, Cluster, Node, Options, in_url
from controlplane.cluster.plan import scheduler
from controlplane.cluster.plan import storage as storage_plan
from controlplane.cluster.plan.certificates import authentication_config, service_account_key
from controlplane.cluster.plan.load_balancer import pool as load_balancer_pool
from controlplane.cluster.plan.node_files import CONTAINERD_SOCKET, SYSTEM_PATH
from controlplane.cluster.plan.node_marks import registration_flags
from controlplane.cluster.plan.tracing import daemon_flags, runtime_environment
from controlplane.cluster.plan.wiring import UPLINK
from controlplane.supervisor.model import Program
from policy.settings import SOCKET as POLICY_SOCKET


@dataclass(frozen=True, slots=True)
class Tools:
    """Where the executables are: `binaries` by name, the Python interpreter, the root of this project."""

    binaries: Mapping[str, str]
    python: str
    project: str

    def environment(self, *found_first: str, **more: str) -> dict[str, str]:
        """A daemon's environment; the directories of these binaries, and of what is beside them, are first in PATH."""
        folders = (posixpath.dirname(self.binaries[name]) for name in found_first if name in self.binaries)
        return {"PATH": ":".join((*folders, SYSTEM_PATH)), "HOME": "/root", "LANG": "C.UTF-8", **more}

    def python_environment(self) -> dict[str, str]:
        return self.environment(PYTHONPATH=self.project, PYTHONUNBUFFERED="1")


def needed(options: Options) -> tuple[str, ...]:
    """Names of the binaries that a cluster with these options needs."""
    names = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    names += ["containerd", "containerd-shim-runc-v2", "runc", "ctr", "kubectl"]
    if options.kubeadm:
        names.append("kubeadm")
    if options.agent == "upstream":
        names.append("kubelet")
    if options.proxy == "upstream":
        names.append("kube-proxy")
    if options.provides_volumes:
        names += storage_plan.HELPERS
    return tuple(names)


def programs(cluster: Cluster, unit: str, tools: Tools) -> tuple[Program, ...]:
    """All that runs in a unit of a cluster that is not kubeadm's, in the order in which it is started."""
    if unit == CONTROL_PLANE:
        return storage(cluster, tools) + controllers(cluster, tools)
    if unit == PORTS:
        return (ports(cluster, tools),)
    node = next(one for one in cluster.nodes if one.name == unit)
    found = [runtime(cluster, node, tools), agent(cluster, node, tools), proxy(cluster, node, tools)]
    if cluster.options.enforces_policies:
        found.append(policy(cluster, node, tools))
    if cluster.options.gives_addresses:
        found.append(load_balancer(cluster, node, tools))
    if cluster.options.provides_volumes:
        found.extend(volumes(cluster, node, tools))
    return tuple(found)


def program_names(cluster: Cluster, unit: str) -> tuple[str, ...]:
    """Names of programs(), wherever their executables are."""
    nowhere = Tools(dict.fromkeys(needed(cluster.options), ""), "", "")
    return tuple(one.name for one in programs(cluster, unit, nowhere))


def storage(cluster: Cluster, tools: Tools) -> tuple[Program, ...]:
    """etcd and the API server, which must run before the rest can."""
    return (
        _control_plane(cluster, tools, "etcd", etcd_flags(cluster), stop_timeout=5),
        _control_plane(cluster, tools, "kube-apiserver", api_server_flags(cluster), stop_timeout=5),
    )


def controllers(cluster: Cluster, tools: Tools) -> tuple[Program, ...]:
    """Controller manager and scheduler; without a ready API server they would exit, as their roles are missing."""
    return (
        _control_plane(cluster, tools, "kube-controller-manager", controller_manager_flags(cluster)),
        _control_plane(cluster, tools, "kube-scheduler", scheduler_flags(cluster)),
    )


def _control_plane(
    cluster: Cluster, tools: Tools, name: str, flags: tuple[str, ...], stop_timeout: float = 3
) -> Program:
    argv = (tools.binaries[name], *flags)
    log = f"{cluster.log_dir(CONTROL_PLANE)}/{name}.log"
    return Program(name, argv, log, tools.environment(name), stop_timeout)


def etcd_flags(cluster: Cluster) -> tuple[str, ...]:
    """https://etcd.io/docs/v3.6/op-guide/configuration/; no fsync unless asked: this is a throw-away cluster."""
    certificate, authority = f"{cluster.pki_dir}/etcd/server", f"{cluster.pki_dir}/etcd/ca.crt"
    flags = [
        "--name=nodewright",
        f"--data-dir={cluster.control_plane_dir}/etcd",
        "--listen-client-urls=https://127.0.0.1:2379",
        "--advertise-client-urls=https://127.0.0.1:2379",
        "--listen-peer-urls=https://127.0.0.1:2380",
        "--initial-advertise-peer-urls=https://127.0.0.1:2380",
        "--initial-cluster=nodewright=https://127.0.0.1:2380",
        f"--cert-file={certificate}.crt",
        f"--key-file={certificate}.key",
        f"--trusted-ca-file={authority}",
        "--client-cert-auth=true",
        f"--peer-cert-file={certificate}.crt",
        f"--peer-key-file={certificate}.key",
        f"--peer-trusted-ca-file={authority}",
        "--peer-client-cert-auth=true",
        "--log-level=warn",
    ]
    if not cluster.options.durable:
        flags.append("--unsafe-no-fsync=true")
    return tuple(flags)


def api_server_flags(cluster: Cluster) -> tuple[str, ...]:
    """https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/"""
    pki, service_account = cluster.pki_dir, service_account_key(cluster)
    flags = (
        f"--advertise-address={cluster.api_address}",
        f"--secure-port={API_PORT}",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth=true",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        "--etcd-servers=https://127.0.0.1:2379",
        f"--etcd-cafile={pki}/etcd/ca.crt",
        f"--etcd-certfile={pki}/apiserver-etcd-client.crt",
        f"--etcd-keyfile={pki}/apiserver-etcd-client.key",
        # With the default of five minutes one conformance test takes six; a small etcd compacts quickly.
        "--etcd-compaction-interval=30s",
        f"--encryption-provider-config={pki}/encryption.json",
        f"--authentication-config={authentication_config(cluster)}",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        # Webhooks and aggregated servers are called at their endpoints, which works with any proxy or none.
        "--enable-aggregator-routing=true",
        f"--proxy-client-cert-file={pki}/front-proxy-client.crt",
        f"--proxy-client-key-file={pki}/front-proxy-client.key",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--service-account-issuer=https://kubernetes.default.svc.{cluster.domain}",
        f"--service-account-key-file={service_account}.pub",
        f"--service-account-signing-key-file={service_account}.key",
        f"--service-cluster-ip-range={','.join(cluster.service_cidrs)}",
        "--service-node-port-range=30000-32767",
        "--profiling=false",
        "--v=0",
    )
    return _customized(cluster, flags, cluster.options.custom.api_server)


def controller_manager_flags(cluster: Cluster) -> tuple[str, ...]:
    """https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/"""
    pki = cluster.pki_dir
    config = f"{pki}/controller-manager.conf"
    flags = (
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        f"--client-ca-file={pki}/ca.crt",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--allocate-node-cidrs=true",
        f"--cluster-cidr={','.join(cluster.pod_cidrs)}",
        *_mask_sizes(cluster),
        f"--service-cluster-ip-range={','.join(cluster.service_cidrs)}",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={service_account_key(cluster)}.key",
        "--use-service-account-credentials=true",
        "--controllers=*,bootstrapsigner,tokencleaner",
        # There is only one: an election would just cost the first seconds.
        "--leader-elect=false",
        # The node monitor removes the taint of a Node that became Ready in its next pass: with upstream's 5 s
        # a new cluster would be idle for most of its start.
        "--node-monitor-period=500ms",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
        "--v=0",
    )
    return _customized(cluster, flags, cluster.options.custom.controller_manager)


def _customized(cluster: Cluster, flags: Sequence[str], given: Mapping[str, str]) -> tuple[str, ...]:
    """A program's flags with those that the user gave, instead of ours of the same name, and the feature gates."""
    kept = [flag for flag in flags if flag.removeprefix("--").partition("=")[0] not in given]
    gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(cluster.options.custom.feature_gates.items()))
    more = [f"--{name}={value}" for name, value in sorted(given.items())]
    return (*kept, *more, *([f"--feature-gates={gates}"] if gates else []))


def _mask_sizes(cluster: Cluster) -> tuple[str, ...]:
    """Sizes of a node's podCIDRs; with two families upstream requires the flags that name the family."""
    sizes = {4: 24, 6: 64}
    if len(cluster.families) == 1:
        return (f"--node-cidr-mask-size={sizes[cluster.families[0]]}",)
    return tuple(f"--node-cidr-mask-size-ipv{version}={sizes[version]}" for version in cluster.families)


def scheduler_flags(cluster: Cluster) -> tuple[str, ...]:
    """Those of its configuration (plan/scheduler.py), and the user's."""
    return _customized(cluster, scheduler.flags(cluster), cluster.options.custom.scheduler)


def ports(cluster: Cluster, tools: Tools) -> Program:
    """What listens on ports of this machine and leads each connection to a node."""
    argv = [tools.python, "-S", "-m", "controlplane.machine.edge.forward"]
    for port in cluster.options.custom.ports:
        nodes = [node for node in cluster.nodes if port.node in ("", node.name)]
        behind = ",".join(f"{in_url(node.address)}:{port.node_port}" for node in nodes)
        argv.append(f"{in_url(port.listen)}:{port.host_port}={behind}")
    return Program("ports", tuple(argv), f"{cluster.log_dir(PORTS)}/ports.log", tools.python_environment())


def runtime(cluster: Cluster, node: Node, tools: Tools) -> Program:
    """containerd of a node. Stopping it does not stop the containers, as their shims keep running."""
    argv = (tools.binaries["containerd"], "--config", "/etc/containerd/config.toml", "--log-level", "info")
    log = f"{cluster.log_dir(node.name)}/containerd.log"
    # Its shims, which are beside it, inherit PATH: without a configuration of ours, as from `ctr run`, they look there
    # for runc.
    environment = tools.environment("containerd", "runc", **runtime_environment(cluster, node))
    return Program("containerd", argv, log, environment, stop_timeout=5)


def agent(cluster: Cluster, node: Node, tools: Tools) -> Program:
    """The kubelet of a node: ours with the CNI server inside, or upstream's."""
    flags = (
        "--config=/etc/kubernetes/kubelet.yaml",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--root-dir=/var/lib/kubelet",
        f"--node-ip={','.join(node.addresses)}",
        f"--container-runtime-endpoint=unix://{CONTAINERD_SOCKET}",
        *registration_flags(cluster.member(node.name)),
        "--v=2",
    )
    log = f"{cluster.log_dir(node.name)}/agent.log"
    if cluster.options.agent == "upstream":
        return Program("agent", (tools.binaries["kubelet"], *flags), log, tools.environment(), stop_timeout=10)
    firewall = "nftables" if cluster.options.proxy_mode == "nftables" else "iptables"
    own = (*(f"--pod-network-cidr={cidr}" for cidr in cluster.pod_cidrs), f"--pod-network-firewall={firewall}")
    if cluster.options.enforces_policies:
        own = (*own, f"--network-policy-socket={POLICY_SOCKET}")
    command = (tools.python, "-m", "cli.node_main", *flags, *own)
    return Program("agent", command, log, tools.python_environment(), stop_timeout=10)


def policy(cluster: Cluster, node: Node, tools: Tools) -> Program:
    """The daemon of a node that enforces network policies."""
    flags = policy_flags("/etc/kubernetes/policy.conf", node.name, (cluster.dns_service,), daemon_flags(cluster, node))
    log = f"{cluster.log_dir(node.name)}/policy.log"
    return Program("policy", (tools.python, "-m", "policy", *flags), log, tools.python_environment())


def policy_flags(
    kubeconfig: str, node: str, dns_servers: Iterable[str], tracing: Iterable[str] = ()
) -> tuple[str, ...]:
    """Of the policy daemon of the node called `node`. `dns_servers`: those that the kubelet gives to pods; `tracing`:
    its flags for that."""
    return (
        f"--kubeconfig={kubeconfig}",
        f"--cluster-dns={','.join(dns_servers)}",
        f"--hostname-override={node}",
        f"--socket={POLICY_SOCKET}",
        *tracing,
        "--v=2",
    )


def load_balancer(cluster: Cluster, node: Node, tools: Tools) -> Program:
    """The daemon of a node that announces addresses of Services; one of them gives them out."""
    flags = (
        "--kubeconfig=/etc/kubernetes/loadbalancer.conf",
        f"--hostname-override={node.name}",
        f"--pool={load_balancer_pool(cluster)}",
        f"--interface={UPLINK}",
        "--v=2",
    )
    log = f"{cluster.log_dir(node.name)}/loadbalancer.log"
    return Program("loadbalancer", (tools.python, "-m", "loadbalancer", *flags), log, tools.python_environment())


def volumes(cluster: Cluster, node: Node, tools: Tools) -> tuple[Program, ...]:
    """The CSI driver of a node, and upstream's programs that turn claims and snapshots into calls of it."""
    logs = cluster.log_dir(node.name)
    argv = (tools.python, "-m", "csi", f"--hostname-override={node.name}", "--v=2")
    driver = Program("csi", argv, f"{logs}/csi.log", tools.python_environment(), stop_timeout=15)
    return (
        driver,
        *(
            Program(
                name,
                (tools.binaries[name], *flags),
                f"{logs}/{name}.log",
                tools.environment(name, **storage_plan.environment(node)),
            )
            for name, flags in storage_plan.helpers(cluster, node).items()
        ),
    )


def proxy(cluster: Cluster, node: Node, tools: Tools) -> Program:
    """The service proxy of a node: ours or upstream's."""
    flags = ("--config=/etc/kubernetes/proxy.yaml",)
    log = f"{cluster.log_dir(node.name)}/proxy.log"
    if cluster.options.proxy == "upstream":
        return Program("proxy", (tools.binaries["kube-proxy"], *flags, "--v=2"), log, tools.environment())
    command = (tools.python, "-m", "proxy", *flags, *daemon_flags(cluster, node), "--v=2")
    return Program("proxy", command, log, tools.python_environment())
