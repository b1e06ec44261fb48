"""Scripts and command lines on kubeadm's nodes: kubelet, systemctl, kubeadm itself, daemons. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from controlplane.cluster.model import API_PORT, BALANCER, Cluster, Node
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.plan.node_files import commands_dir
from controlplane.supervisor.model import Program

CLEAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONFIG = "/var/lib/kubelet/config.yaml"
_FLAGS = "/var/lib/kubelet/kubeadm-flags.env"


def kubelet_command(cluster: Cluster, tools: Tools) -> str:
    """The script `kubelet`: kubeadm asks it for the version, and the service starts the agent with it."""
    if cluster.options.agent == "upstream":
        return f'#!/bin/sh\nexec {shlex.quote(tools.binaries["kubelet"])} "$@"\n'
    return (
        f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(tools.project)} PYTHONUNBUFFERED=1\n"
        f'exec {shlex.quote(tools.python)} -m cli.node_main "$@"\n'
    )


def kubelet_service(cluster: Cluster, node: Node) -> str:
    """The script that a supervisor runs in place of kubeadm's kubelet.service with its 10-kubeadm.conf."""
    extra = ["--v=2"]
    if cluster.options.agent != "upstream" and cluster.options.network != "nodewright":
        extra.append("--pod-network=none")
    elif cluster.options.agent != "upstream":
        extra += [f"--pod-network-cidr={cidr}" for cidr in cluster.pod_cidrs]
    return f"""#!/bin/sh
# A supervisor restarts this script; until kubeadm has written the configuration there is nothing to run.
[ -e {_CONFIG} ] || {{ echo "waiting for kubeadm: {_CONFIG} does not exist yet"; exit 1; }}
chmod 600 {_CONFIG}  # kubeadm leaves it readable for all
KUBELET_KUBEADM_ARGS=
[ -r {_FLAGS} ] && . {_FLAGS}
KUBELET_EXTRA_ARGS={shlex.quote(" ".join(extra))}
exec kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \\
  --kubeconfig=/etc/kubernetes/kubelet.conf --config={_CONFIG} \\
  $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""


def systemctl_command(cluster: Cluster, node: Node, tools: Tools) -> str:
    """The script `systemctl` of a node without systemd."""
    folder = cluster.unit_dir(node.name)
    return (
        f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(tools.project)}\n"
        f'exec {shlex.quote(tools.python)} -S -m controlplane.standins.systemctl {shlex.quote(folder)} "$@"\n'
    )


def kubeadm_line(cluster: Cluster, node: Node, tools: Tools, *arguments: str) -> list[str]:
    """kubeadm with the node's commands in front of PATH and none of our environment.

    kubeadm would write the proxy variables that it finds there into the static pods.
    """
    path = f"{commands_dir(cluster, node)}:{CLEAN_PATH}"
    return ["env", "-i", f"PATH={path}", "HOME=/root", tools.binaries["kubeadm"], *arguments]


def join_line(cluster: Cluster, node: Node, tools: Tools, token_file: str, ca_hash: str) -> list[str]:
    """`nodewright join` on a node. Every user of this machine sees the command line: the token is in a file."""
    words = [
        *(tools.python, "-m", "cli", "join", f"https://{cluster.api_address}:{API_PORT}"),
        *(f"--token=@{token_file}", f"--ca-hash={ca_hash}", f"--node-name={node.name}", "--plain"),
    ]
    environment = [f"PATH={CLEAN_PATH}", "HOME=/root", f"PYTHONPATH={tools.project}"]
    return ["env", "-i", *environment, *words]


def kubelet_program(cluster: Cluster, node: Node, tools: Tools) -> Program:
    """The kubelet of a kubeadm node, started as its unit file would."""
    folder = commands_dir(cluster, node)
    env = {**tools.environment(), "PATH": f"{folder}:{CLEAN_PATH}"}
    return Program("agent", (f"{folder}/kubelet-service",), f"{cluster.log_dir(node.name)}/agent.log", env, 10)


def balancer_program(cluster: Cluster, tools: Tools, backends: Iterable[str]) -> Program:
    """The load balancer in front of the API servers at these addresses."""
    listen, *behind = (f"{address}:{API_PORT}" for address in (cluster.api_address, *backends))
    argv = (tools.python, "-S", "-m", "controlplane.kubeadm.balancer", listen, *behind)
    return Program("balancer", argv, f"{cluster.log_dir(BALANCER)}/balancer.log", tools.python_environment())
