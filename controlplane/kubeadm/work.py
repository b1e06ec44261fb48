"""Raises a cluster as its users do, with kubeadm: init on the first node, join on the others.

The nodes are those of `up`; what runs on them comes from kubeadm: the control plane as static pods, CoreDNS and
(with --proxy upstream) kube-proxy as addons. Run again, it goes on with the nodes that are not in the cluster yet.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from controlplane.cluster.model import BALANCER, Cluster, Node
from controlplane.cluster.plan import components, manifests, node_files
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.work import nodes, peer, workloads
from controlplane.cluster.work.control_plane import start_unit
from controlplane.cluster.work.node_images import import_images
from controlplane.kubeadm.plan import commands, config, kindnet
from controlplane.machine.edge import cgroups, files
from controlplane.machine.edge.namespaces import entered
from controlplane.machine.edge.streamed import run_lines
from controlplane.progress import Progress, Say
from controlplane.supervisor.edge import units
from nodelib import command
from nodelib.clock import Clock
from nodelib.errors import NotFound, Permanent
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient

_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Ground:
    """What every step works with."""

    cluster: Cluster
    tools: Tools
    progress: Progress
    clock: Clock


async def raise_cluster(ground: Ground, images: Mapping[str, Path]) -> None:
    """Until every node has joined; the caller sees to their being Ready. Raises Permanent with kubeadm's words."""
    cluster = ground.cluster
    async with asyncio.TaskGroup() as group:
        for node in cluster.nodes:
            group.create_task(_start_node(ground, node, images), name=node.name)
    if cluster.options.control_planes > 1:
        addresses = [node.address for node in config.control_planes(cluster)]
        program = commands.balancer_program(cluster, ground.tools, addresses)
        await asyncio.to_thread(start_unit, cluster, BALANCER, (program,), ground.tools.project)
    by_us = config.joined(cluster)
    first, *others = (node for node in cluster.nodes if node not in by_us)
    secret = await asyncio.to_thread(_secret, cluster)
    await _init(ground, first, secret)
    await _rights(ground)
    ca_hash = await asyncio.to_thread(_ca_hash, cluster, first)
    # Members of etcd are added one at a time.
    for node in [other for other in others if other in config.control_planes(cluster)]:
        await _join(ground, node, secret, ca_hash)
    workers = [other for other in others if other not in config.control_planes(cluster)]
    async with asyncio.TaskGroup() as group:
        for node in workers:
            group.create_task(_join(ground, node, secret, ca_hash), name=f"join {node.name}")
    await _network_and_proxy(ground, first)
    for node in by_us:
        await _join_by_us(ground, node, secret, ca_hash)


async def _start_node(ground: Ground, node: Node, images: Mapping[str, Path]) -> None:
    cluster = ground.cluster
    with ground.progress.step(f"{node.name}: containerd and images") as say:
        await asyncio.to_thread(_write_commands, ground, node)
        await asyncio.to_thread(_start_services, ground, node, with_proxy=_has_proxy(cluster, node))
        await nodes.wait_runtime(cluster, node, ground.clock)
        say(await import_images(cluster, node, ground.tools, images))


def _write_commands(ground: Ground, node: Node) -> None:
    cluster, folder = ground.cluster, commands.commands_dir(ground.cluster, node)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    for name, text in (
        ("kubelet", commands.kubelet_command(cluster, ground.tools)),
        ("kubelet-service", commands.kubelet_service(cluster, node)),
        ("systemctl", commands.systemctl_command(cluster, node, ground.tools)),
    ):
        files.write_if_changed(f"{folder}/{name}", text, 0o755)


def _start_services(ground: Ground, node: Node, *, with_proxy: bool) -> None:
    cluster, tools = ground.cluster, ground.tools
    folder = cluster.unit_dir(node.name)
    if "agent" not in units.wanted(folder):
        units.hold(folder, "agent")  # kubeadm starts it
    programs = [components.runtime(cluster, node, tools)]
    if node not in config.joined(cluster):
        programs.append(commands.kubelet_program(cluster, node, tools))
    if with_proxy:
        programs.append(components.proxy(cluster, node, tools))
    start_unit(cluster, node.name, tuple(programs), tools.project)


def _has_proxy(cluster: Cluster, node: Node) -> bool:
    return os.path.exists(f"{cluster.node_dir(node.name)}/kubernetes/proxy.conf")


async def _init(ground: Ground, node: Node, secret: Mapping[str, str]) -> None:
    cluster = ground.cluster
    with ground.progress.step(f"{node.name}: kubeadm init") as say:
        if os.path.exists(cluster.admin_kubeconfig):
            say("done before")
            return
        path = f"{cluster.node_dir(node.name)}/kubeadm.yaml"
        key = secret["certificate_key"] if cluster.options.control_planes > 1 else ""
        files.write(path, config.init_config(cluster, secret["token"], key))
        more = ("--upload-certs",) if key else ()
        await run_kubeadm(ground, node, say, "init", f"--config={path}", *more, *config.skipped_phases(cluster))
        own = f"{cluster.node_dir(node.name)}/kubernetes/admin.conf"
        files.write(cluster.admin_kubeconfig, await asyncio.to_thread(_read, own))


async def _rights(ground: Ground) -> None:
    """What our agent needs beyond kubeadm's own rules (its pod network reads every Node), and a network of pods."""
    objects = [] if ground.cluster.options.agent == "upstream" else manifests.rights()
    if ground.cluster.options.network == "kindnet":
        objects += kindnet.objects()
    client = KubeClient(load_kubeconfig(ground.cluster.admin_kubeconfig), user_agent="nodewright-up")
    try:
        await workloads.apply(client, objects, ground.clock)
    finally:
        await client.close()


async def _join_by_us(ground: Ground, node: Node, secret: Mapping[str, str], ca_hash: str) -> None:
    cluster = ground.cluster
    with ground.progress.step(f"{node.name}: nodewright join") as say:
        log = f"{cluster.log_dir(node.name)}/join.log"
        path = f"{cluster.cgroup}/{node.name}/system"
        folders = await asyncio.to_thread(lambda: cgroups.ensure(cgroups.hierarchies(), path))
        line = commands.join_line(cluster, node, ground.tools, secret["token"], ca_hash, list(folders))
        words: list[str] = []
        status = await run_lines(
            _inside(cluster, node, line), log=log, on_line=words.append, on_text=lambda piece: None
        )
        if status != 0:
            raise Permanent(
                " | ".join(words[-6:]), obj=f"nodewright join on {node.name}", action=f"Its whole output: {log}"
            )
        say("; ".join(text.strip() for text in words[-4:-1]))


async def _join(ground: Ground, node: Node, secret: Mapping[str, str], ca_hash: str) -> None:
    cluster = ground.cluster
    with ground.progress.step(f"{node.name}: kubeadm join") as say:
        if os.path.exists(f"{cluster.node_dir(node.name)}/kubernetes/kubelet.conf"):
            say("done before")
            return
        path = f"{cluster.node_dir(node.name)}/kubeadm.yaml"
        files.write(path, config.join_config(cluster, node, secret["token"], ca_hash, secret["certificate_key"]))
        await run_kubeadm(ground, node, say, "join", f"--config={path}")


async def run_kubeadm(ground: Ground, node: Node, say: Say, *arguments: str) -> None:
    """kubeadm in the node's namespaces, its output in the node's log. Raises Permanent with its last words."""
    cluster = ground.cluster
    line = commands.kubeadm_line(cluster, node, ground.tools, *arguments)
    log = f"{cluster.log_dir(node.name)}/kubeadm-{arguments[0]}.log"
    words: list[str] = []

    def heard(text: str) -> None:
        words.append(text)
        if text.startswith("["):
            say(text[:100])

    status = await run_lines(_inside(cluster, node, line), log=log, on_line=heard, on_text=lambda piece: None)
    if status != 0:
        said = [text.strip() for text in words if text.strip()]
        told = [text for text in said if text.startswith("error") or "[ERROR " in text] or said[-12:]
        raise Permanent(
            f"exit status {status}: {' | '.join(told)[-1500:]}",
            obj=f"kubeadm {arguments[0]} on {node.name}",
            action=f"Its whole output: {log}; the agent's: {cluster.log_dir(node.name)}/agent.log",
        )


async def _network_and_proxy(ground: Ground, first: Node) -> None:
    cluster = ground.cluster
    if cluster.options.agent == "upstream" and cluster.options.network == "nodewright":
        client = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-up")
        try:
            with ground.progress.step("peer's pod network"):
                await peer.ensure_network(cluster, client, ground.clock)
        finally:
            await client.close()
    if cluster.options.proxy == "upstream":
        return
    with ground.progress.step("service proxy on every node"):
        path = f"{cluster.node_dir(first.name)}/kubeadm.yaml"
        arguments = ("kubeconfig", "user", "--client-name=system:kube-proxy", f"--config={path}")
        line = commands.kubeadm_line(cluster, first, ground.tools, *arguments)
        done = await command.run(_inside(cluster, first, line), timeout=60)
        for node in [one for one in cluster.nodes if one not in config.joined(cluster)]:
            own = f"{cluster.node_dir(node.name)}/kubernetes"
            if not _has_proxy(cluster, node):
                files.write(f"{own}/proxy.conf", done.stdout)
            files.write_if_changed(f"{own}/proxy.yaml", node_files.proxy_config(cluster, node), 0o644)
            await asyncio.to_thread(_start_services, ground, node, with_proxy=True)


def _inside(cluster: Cluster, node: Node, argv: list[str]) -> list[str]:
    spaces = {kind: cluster.namespace(node.name, kind) for kind in ("net", "mnt", "uts")}
    return entered(spaces["net"], argv, mnt=spaces["mnt"], uts=spaces["uts"])


def _secret(cluster: Cluster) -> dict[str, str]:
    """The bootstrap token and the key of the uploaded certificates, made once for a cluster."""
    path = os.path.join(cluster.dir, "kubeadm.json")
    if not os.path.exists(path):
        token = ".".join("".join(secrets.choice(_CHARACTERS) for _ in range(length)) for length in (6, 16))
        files.write(path, json.dumps({"token": token, "certificate_key": secrets.token_hex(32)}))
    found: dict[str, str] = json.loads(_read(path))
    return found


def _ca_hash(cluster: Cluster, first: Node) -> str:
    """The pin of the cluster's authority, as kubeadm writes it: SHA-256 of its public key."""
    path = f"{cluster.node_dir(first.name)}/kubernetes/pki/ca.crt"
    try:
        certificate = x509.load_pem_x509_certificate(_read(path).encode())
    except FileNotFoundError as error:
        raise NotFound(
            "kubeadm has left no certificate authority there",
            obj=path,
            step="read the cluster's authority",
            action=f"`./nodewright down --name {cluster.name}`, then raise it again.",
        ) from error
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    key = certificate.public_key().public_bytes(serialization.Encoding.DER, form)
    return f"sha256:{hashlib.sha256(key).hexdigest()}"


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
