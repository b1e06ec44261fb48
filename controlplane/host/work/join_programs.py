"""The programs that `join` starts here: containerd if none answers, the agent, and what the cluster lacks."""

from __future__ import annotations

import os
import shutil
import socket

from controlplane.cluster.plan import node_files
from controlplane.cluster.plan.components import policy_flags
from controlplane.host.model import KnownCluster, Request
from controlplane.host.plan import join as plan
from controlplane.supervisor.edge import units
from controlplane.supervisor.model import Program
from nodelib.daemons.python_path import python_path
from nodelib.errors import Permanent
from policy.settings import SOCKET as POLICY_SOCKET

FOLDER = "/var/lib/kubelet/nodewright"  # of the supervisor and the daemons' logs


def start(request: Request, known: KnownCluster, network: str, proxy: str) -> None:
    programs = [_containerd(request)] if _starts_containerd(request) else []
    programs.append(agent_program(request, known, network, hostname()))
    if proxy == "nodewright":
        flags = (f"--config={plan.PROXY_CONFIG}", *plan.tracing_flags(known.kubelet), "--v=2")
        programs.append(_python_program(request, "proxy", "proxy", *flags))
    if _is_enforced(request, network):
        programs.append(_policy(request, known))
    units.write_spec(FOLDER, cgroups=(), namespaces=(), programs=programs)
    units.let_start(FOLDER)  # what an interrupted `leave` has stopped
    units.ensure_supervisor(FOLDER, f"{FOLDER}/supervisor.log", request.project)


def check_runtime(request: Request) -> None:
    """Raises Invalid or Permanent for a --cri-socket where nothing answers. Nobody else would start it."""
    path = plan.runtime_socket(request.runtime)
    if request.runtime and not _answers(path):
        raise Permanent(
            "no container runtime answers",
            obj=f"--cri-socket {path}",
            step="container runtime",
            action="Start it (systemctl start crio), or leave --cri-socket out, for containerd.",
        )


def _starts_containerd(request: Request) -> bool:
    return not request.runtime and (_ours("containerd") or not _answers(node_files.CONTAINERD_SOCKET))


def _containerd(request: Request) -> Program:
    path = request.binaries.get("containerd") or shutil.which("containerd")
    if not path:
        raise Permanent(
            "no container runtime answers and containerd is not installed",
            obj=node_files.CONTAINERD_SOCKET,
            step="start containerd",
            action="Run apt-get install containerd, or start the container runtime that is there.",
        )
    env = {"PATH": f"{os.path.dirname(path)}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    argv = (path, "--config", "/etc/containerd/config.toml")
    return Program("containerd", argv, f"{FOLDER}/containerd.log", {**env, "HOME": "/root"})


def agent_program(request: Request, known: KnownCluster, network: str, hostname: str) -> Program:
    flags = [
        f"--config={plan.CONFIG}",
        f"--config-dir={plan.DROP_INS}",
        f"--kubeconfig={plan.KUBELET_CONF}",
        f"--bootstrap-kubeconfig={plan.BOOTSTRAP_CONF}",
        *plan.override_of(request.node, hostname),
        f"--pod-network={network}",
        *([f"--node-ip={request.node_ip}"] if request.node_ip else []),
        *(f"--pod-network-cidr={cidr}" for cidr in known.cluster_cidrs),
        *([f"--network-policy-socket={POLICY_SOCKET}"] if _is_enforced(request, network) else []),
        "--v=2",
        *request.arguments,
    ]
    return _python_program(request, "agent", "cli.node_main", *flags)


def _is_enforced(request: Request, network: str) -> bool:
    return request.policies and network == "nodewright"


def _policy(request: Request, known: KnownCluster) -> Program:
    traced = plan.tracing_flags(known.kubelet)
    flags = policy_flags(plan.KUBELET_CONF, request.node, plan.dns_servers(known.kubelet), traced)
    return _python_program(request, "policy", "policy", *flags)


def _python_program(request: Request, name: str, module: str, *flags: str) -> Program:
    env = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONPATH": python_path(request.project),
        "PYTHONUNBUFFERED": "1",
    }
    return Program(name, (request.python, "-m", module, *flags), f"{FOLDER}/{name}.log", env, 10)


def hostname() -> str:
    """This machine's name as the agent takes it."""
    return socket.gethostname().strip().lower()


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _ours(program: str) -> bool:
    return program in units.program_names(FOLDER)
