"""Raises a cluster with kubeadm, as most users do: init on the first node, join on the others.

The nodes are those of `up`; what runs on them comes from kubeadm: the control plane as static pods, CoreDNS and
(with --proxy upstream) kube-proxy as addons. Run again, it continues with the nodes that have not joined yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from controlplane.cluster.advice import ours
from controlplane.cluster.model import BALANCER, Cluster, Node
from controlplane.cluster.plan import components, daemon_configs, manifests, user_kubeconfig
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.plan.node_files import commands_dir
from controlplane.cluster.work import bridge_network, nodes, workloads
from controlplane.cluster.work.control_plane import start_unit
from controlplane.cluster.work.node_images import import_images
from controlplane.kubeadm.plan import commands, config, kindnet
from controlplane.machine.edge import cgroups, files
from controlplane.machine.edge.namespaces import alone_in_node, in_cgroups
from controlplane.machine.edge.streamed import run_lines
from controlplane.progress import Progress, Say
from controlplane.supervisor.edge import units
from nodelib import command
from nodelib.clock import Clock
from nodelib.errors import NotFound, Permanent
from nodelib.files import bytes_of
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.kube.pins import pin_of

_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LARGEST = 1 << 20  # bytes of a certificate or a kubeconfig


@dataclass(frozen=True, slots=True)
class Context:
    """What every step needs."""

    cluster: Cluster
    tools: Tools
    progress: Progress
    clock: Clock


async def raise_cluster(context: Context, images: Mapping[str, Path]) -> None:
    """Raise the cluster until every node has joined; the caller waits until they are Ready.

    Raises Permanent with kubeadm's output.
    """
    cluster = context.cluster
    async with asyncio.TaskGroup() as group:
        for node in cluster.nodes:
            group.create_task(_start_node(context, node, images), name=node.name)
    if cluster.options.control_planes > 1:
        addresses = [node.address for node in config.control_planes(cluster)]
        program = commands.balancer_program(cluster, context.tools, addresses)
        await asyncio.to_thread(start_unit, cluster, BALANCER, (program,), context.tools.project)
    joined = config.joined(cluster)
    first, *others = (node for node in cluster.nodes if node not in joined)
    secret = await asyncio.to_thread(_secret, cluster)
    await _init(context, first, secret)
    await _rights(context)
    ca_hash = await asyncio.to_thread(_ca_hash, cluster, first)
    # Members of etcd are added one at a time.
    for node in [other for other in others if other in config.control_planes(cluster)]:
        await _kubeadm_join(context, node, secret, ca_hash)
    workers = [other for other in others if other not in config.control_planes(cluster)]
    async with asyncio.TaskGroup() as group:
        for node in workers:
            group.create_task(_kubeadm_join(context, node, secret, ca_hash), name=f"join {node.name}")
    await _network_and_proxy(context, first)
    for node in joined:
        await _nodewright_join(context, node, secret, ca_hash)


async def _start_node(context: Context, node: Node, images: Mapping[str, Path]) -> None:
    cluster = context.cluster
    with context.progress.step(f"{node.name}: containerd and images") as say:
        await asyncio.to_thread(_write_commands, context, node)
        await asyncio.to_thread(_start_services, context, node, with_proxy=_has_proxy(cluster, node))
        await nodes.wait_runtime(cluster, node, context.clock)
        say(await import_images(cluster, node, context.tools, images))


def _write_commands(context: Context, node: Node) -> None:
    cluster, folder = context.cluster, commands_dir(context.cluster, node)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    for name, text in (
        ("kubelet", commands.kubelet_command(cluster, context.tools)),
        ("kubelet-service", commands.kubelet_service(cluster, node)),
        ("systemctl", commands.systemctl_command(cluster, node, context.tools)),
    ):
        files.write_if_changed(f"{folder}/{name}", text, 0o755)


def _start_services(context: Context, node: Node, *, with_proxy: bool) -> None:
    cluster, tools = context.cluster, context.tools
    folder = cluster.unit_dir(node.name)
    if "agent" not in units.program_names(folder):
        units.keep_stopped(folder, "agent")  # kubeadm starts it
    programs = [components.runtime(cluster, node, tools)]
    if node not in config.joined(cluster):
        programs.append(commands.kubelet_program(cluster, node, tools))
    if with_proxy:
        programs.append(components.proxy(cluster, node, tools))
    start_unit(cluster, node.name, tuple(programs), tools.project)


def _has_proxy(cluster: Cluster, node: Node) -> bool:
    return os.path.exists(f"{cluster.node_dir(node.name)}/kubernetes/proxy.conf")


async def _init(context: Context, node: Node, secret: Mapping[str, str]) -> None:
    cluster = context.cluster
    with context.progress.step(f"{node.name}: kubeadm init") as say:
        if os.path.exists(cluster.admin_kubeconfig):
            say("already done")
            return
        path = f"{commands_dir(cluster, node)}/kubeadm.yaml"
        key = secret["certificate_key"] if cluster.options.control_planes > 1 else ""
        files.write(path, config.init_config(cluster, secret["token"], key))
        more = ("--upload-certs",) if key else ()
        await run_kubeadm(context, node, say, "init", f"--config={path}", *more, *config.skipped_phases(cluster))
        own = f"{cluster.node_dir(node.name)}/kubernetes/admin.conf"
        text = await asyncio.to_thread(_read, own)
        # kubeadm gives the entries of every cluster the same names.
        files.write(cluster.admin_kubeconfig, user_kubeconfig.merge("", own, cluster.context, text).text)


async def _rights(context: Context) -> None:
    """Apply what our daemons need beyond kubeadm's rules (the pod network reads every Node), and kindnet if wanted."""
    objects = [] if context.cluster.options.agent == "upstream" else manifests.rights()
    if context.cluster.options.joined:
        objects.append(manifests.proxy_right())
    if context.cluster.options.network == "kindnet":
        objects += kindnet.objects()
    async with KubeClient(load_kubeconfig(context.cluster.admin_kubeconfig), user_agent="nodewright-up") as client:
        await workloads.apply(client, objects, context.clock)


async def _nodewright_join(context: Context, node: Node, secret: Mapping[str, str], ca_hash: str) -> None:
    cluster = context.cluster
    with context.progress.step(f"{node.name}: nodewright join") as say:
        log = f"{cluster.log_dir(node.name)}/join.log"
        token = f"{commands_dir(cluster, node)}/join-token"
        files.write(token, secret["token"])
        line = commands.join_line(cluster, node, context.tools, token, ca_hash)
        words: list[str] = []
        try:
            status = await run_lines(
                _inside(cluster, node, line), log=log, on_line=words.append, on_text=lambda piece: None
            )
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(token)
        if status != 0:
            raise Permanent(
                " | ".join(words[-6:]),
                obj=f"nodewright join on {node.name}",
                action=f"See {log} for all of its output.",
            )
        say("; ".join(text.strip() for text in words[-4:-1]))


async def _kubeadm_join(context: Context, node: Node, secret: Mapping[str, str], ca_hash: str) -> None:
    cluster = context.cluster
    with context.progress.step(f"{node.name}: kubeadm join") as say:
        if os.path.exists(f"{cluster.node_dir(node.name)}/kubernetes/kubelet.conf"):
            say("already done")
            return
        path = f"{commands_dir(cluster, node)}/kubeadm.yaml"
        files.write(path, config.join_config(cluster, node, secret["token"], ca_hash, secret["certificate_key"]))
        await run_kubeadm(context, node, say, "join", f"--config={path}")


async def run_kubeadm(context: Context, node: Node, say: Say, *arguments: str) -> None:
    """Run kubeadm in the node's namespaces, with its output in the node's log. Raises Permanent with its errors."""
    cluster = context.cluster
    line = commands.kubeadm_line(cluster, node, context.tools, *arguments)
    log = f"{cluster.log_dir(node.name)}/kubeadm-{arguments[0]}.log"
    words: list[str] = []

    def on_line(text: str) -> None:
        words.append(text)
        if text.startswith("["):
            say(text[:100])

    status = await run_lines(_inside(cluster, node, line), log=log, on_line=on_line, on_text=lambda piece: None)
    if status != 0:
        said = [text.strip() for text in words if text.strip()]
        errors = [text for text in said if text.startswith("error") or "[ERROR " in text] or said[-12:]
        raise Permanent(
            f"exit status {status}: {' | '.join(errors)[-1500:]}",
            obj=f"kubeadm {arguments[0]} on {node.name}",
            action=f"See {log} for all of its output, and the agent's log: {cluster.log_dir(node.name)}/agent.log",
        )


async def _network_and_proxy(context: Context, first: Node) -> None:
    cluster = context.cluster
    if cluster.options.agent == "upstream" and cluster.options.network == "nodewright":
        async with KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-up") as client:
            with context.progress.step("pod network for upstream's kubelet"):
                await bridge_network.ensure_network(cluster, client, context.clock)
    if cluster.options.proxy == "upstream":
        return
    with context.progress.step("service proxy on every node"):
        path = f"{commands_dir(cluster, first)}/kubeadm.yaml"
        arguments = ("kubeconfig", "user", "--client-name=system:kube-proxy", f"--config={path}")
        line = commands.kubeadm_line(cluster, first, context.tools, *arguments)
        done = await command.run(_inside(cluster, first, line), timeout=60)
        for node in [one for one in cluster.nodes if one not in config.joined(cluster)]:
            own = f"{cluster.node_dir(node.name)}/kubernetes"
            if not _has_proxy(cluster, node):
                files.write(f"{own}/proxy.conf", done.stdout)
            files.write_if_changed(f"{own}/proxy.yaml", daemon_configs.proxy_config(cluster, node))
            await asyncio.to_thread(_start_services, context, node, with_proxy=True)


def _inside(cluster: Cluster, node: Node, argv: list[str]) -> list[str]:
    """The command in the node, and in the cgroups of its daemons, which it may leave processes to."""
    folders = cgroups.ensure(cgroups.hierarchies(), f"{cluster.cgroup}/{node.name}/system")
    return in_cgroups(folders, alone_in_node(cluster.namespaces(node.name), argv))


def _secret(cluster: Cluster) -> dict[str, str]:
    """The bootstrap token and the key of the uploaded certificates, made once for each cluster."""
    path = os.path.join(cluster.dir, "kubeadm.json")
    if not os.path.exists(path):
        token = ".".join("".join(secrets.choice(_CHARACTERS) for _ in range(length)) for length in (6, 16))
        files.write(path, json.dumps({"token": token, "certificate_key": secrets.token_hex(32)}))
    found: dict[str, str] = json.loads(_read(path))
    return found


def _ca_hash(cluster: Cluster, first: Node) -> str:
    """The hash of the cluster's authority as kubeadm writes it: SHA-256 of its public key."""
    path = f"{cluster.node_dir(first.name)}/kubernetes/pki/ca.crt"
    try:
        certificate = x509.load_pem_x509_certificate(_read(path).encode())
    except FileNotFoundError as error:
        raise NotFound(
            "kubeadm left no certificate authority there",
            obj=path,
            step="read the cluster's authority",
            action=f"Run {ours(cluster.name, 'down')}, then raise it again.",
        ) from error
    return pin_of(certificate)


def _read(path: str) -> str:
    return bytes_of(path, _LARGEST, 0).decode(errors="replace")  # a node may have a pipe there, or what has no end
