"""Makes this machine (or the namespaces it runs in) a node of an existing cluster.

Where the cluster has DaemonSets for the pod network or kube-proxy, ours are not started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import yaml

from controlplane.cluster.plan import daemon_configs
from controlplane.cluster.work import workloads
from controlplane.host.edge import discovery
from controlplane.host.model import Joined, KnownCluster, Request
from controlplane.host.plan import join as plan
from controlplane.host.plan import join_trust
from controlplane.host.work import join_programs, join_waits
from controlplane.host.work.join_programs import FOLDER, hostname
from controlplane.machine.edge import files, oom
from controlplane.progress import Progress
from controlplane.supervisor.edge import units
from nodelib import safe_yaml
from nodelib.clock import Clock
from nodelib.errors import Conflict, NodewrightError, Permanent, WrongUsage
from nodelib.files import bytes_of
from nodelib.json_values import Json, object_or_empty, texts_in
from nodelib.kube.access import ClusterAccess, load_kubeconfig, save_kubeconfig
from nodelib.kube.client import ApiError, ApiUnreachable, KubeClient
from nodelib.kube.tls_errors import is_unsigned

DROP_IN = f"{plan.DROP_INS}/50-nodewright.conf"
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_SIGNED_WITHIN = 15.0
_MOST_CA = 16 << 20  # bytes of a file of authorities
_PATIENCE = 10.0  # seconds, with a server that does not answer: the cluster is there already, or its URL is wrong
_MAPS = "/api/v1/namespaces/kube-system/configmaps"


async def join(request: Request, progress: Progress, clock: Clock) -> Joined:
    """Join the cluster; run again after a failure, it continues. Raises NodewrightError with step, cause and action."""
    began = clock.monotonic()
    request = replace(request, node=request.node or hostname())
    if not request.kubeconfig and not (request.server and request.token):
        raise WrongUsage(
            "neither --kubeconfig FILE nor a URL with --token is given",
            obj="join",
            action="kubeadm token create --print-join-command shows URL, token and hash.",
        )
    if request.server:
        join_trust.check_server(request.server)
    if not request.kubeconfig:
        join_trust.check_trust(pins=request.pins, ca_file=request.ca_file, skip=request.skip_verification)
    check_machine()
    join_programs.check_runtime(request)
    with progress.step("cluster") as say:
        known = await (_by_admin if request.kubeconfig else _by_token)(request, clock)
        say(known.access.server)
    with progress.step(f"name {request.node}"), _signed(request):
        check_cluster(known)
        await _check_name(request, known)
    with progress.step("configuration of the cluster's nodes"):
        await read_cluster(request, known)
    with progress.step("files"):
        await asyncio.to_thread(_write_files, request, known)
    with progress.step("agent" if request.runtime else "containerd and agent") as say:
        network, proxy = _resolve(request, known)
        await asyncio.to_thread(join_programs.start, request, known, network, proxy)
        await join_waits.until_certified(request.node, FOLDER, clock)
        remove_bootstrap()  # from now on the node has credentials of its own; the token must not lie around
        say(f"pod network: {network}, proxy: {proxy}")
    if known.addons is None:
        with progress.step("DaemonSets of the cluster") as say:
            known.addons = await join_waits.addons_on_node(request.node, FOLDER, clock)
            network, proxy = _resolve(request, known)
            await asyncio.to_thread(join_programs.start, request, known, network, proxy)
            say(f"network {known.addons.network or 'none, so ours'}, proxy {known.addons.proxy or 'none, so ours'}")
    with progress.step("rights of nodes"):
        needed = plan.permissions(network, proxy, request.policies)
        await join_waits.until_allowed(request.node, needed, clock, policies=request.policies)
    with progress.step("node Ready"):
        await join_waits.until_ready(request.node, FOLDER, clock)
    return Joined(request.node, known.addons, network, proxy, request.policies, clock.monotonic() - began)


def check_machine(folder: str = FOLDER, of_others: Iterable[str] = plan.OF_OTHERS) -> None:
    """Raises Conflict where this machine is a node, or has a control plane, that no join() has made."""
    there = [path for path in of_others if os.path.lexists(path)]
    if there and not os.path.isdir(folder):
        raise Conflict(
            f"is a node of a cluster already, by other means than this command: it has {', '.join(there)}",
            obj="this machine",
            step="look at this machine",
            action="Take it out of that cluster first (kubeadm reset; its files and pods would be lost), or join"
            " another machine. Nothing was changed.",
        )


def check_cluster(known: KnownCluster, config: str = plan.KUBELET_CONF) -> None:
    """Raises Conflict where this machine is a node of another cluster: its agent would go on there, and be shown as
    Ready, with the authority of this one for its clients."""
    try:
        before = load_kubeconfig(config)
        ours, theirs = (_pins(one.ca_data) for one in (before, known.access))
    except NodewrightError:
        return  # missing or damaged: the agent asks for a certificate
    if ours.isdisjoint(theirs) if ours and theirs else before.server != known.access.server:
        raise Conflict(
            f"this machine is a node of the cluster at {before.server}, which has another authority",
            obj=known.access.server,
            step="look at this machine",
            action="Run `./nodewright leave` first: also if that cluster is gone, and this one has its address.",
        )


def _pins(authority: bytes | None) -> set[str]:
    return {one.pin for one in discovery.certificates(authority)} if authority else set()


def _resolve(request: Request, known: KnownCluster) -> tuple[str, str]:
    network, proxy = plan.resolve(request.network, request.proxy, known.addons)
    if request.policies:
        plan.check_policies(network, known.addons)
    return network, proxy


@contextlib.contextmanager
def _signed(request: Request) -> Iterator[None]:
    """Raises Permanent when no authority that is believed has signed the server's certificate."""
    try:
        yield
    except ApiUnreachable as error:
        if request.kubeconfig or not is_unsigned(error):
            raise
        raise join_trust.not_signed(request.server, pins=request.pins, ca_file=request.ca_file) from error


async def _by_token(request: Request, clock: Clock) -> KnownCluster:
    given = await asyncio.to_thread(_read, request.ca_file) if request.ca_file else None
    identity, _ = join_trust.split_token(request.token)
    deadline = clock.monotonic() + _SIGNED_WITHIN
    with _signed(request):
        info = await discovery.cluster_info(request.server, given)
    # For a token that was just made, the controller manager signs a moment later.
    while not join_trust.is_signed(info, identity) and clock.monotonic() < deadline:
        await clock.sleep(0.5)
        info = await discovery.cluster_info(request.server, given)
    text = join_trust.check_cluster_info(info, request.token)
    authority = join_trust.believed(discovery.certificates(discovery.authority_of(text)), request.pins)
    return KnownCluster(ClusterAccess(request.server.rstrip("/"), ca_data=authority, token=request.token))


async def _by_admin(request: Request, clock: Clock) -> KnownCluster:
    admin = load_kubeconfig(request.kubeconfig)
    join_trust.check_admin(request.kubeconfig, insecure=admin.insecure, skip=request.skip_verification)
    server = (request.server or admin.server).rstrip("/")
    identity, secret = ("".join(secrets.choice(_ALPHABET) for _ in range(length)) for length in (6, 16))
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.now() + 3600))
    problem: ApiError | None = None
    try:
        async with KubeClient(replace(admin, server=server), user_agent=discovery.USER_AGENT) as client:
            objects = [*plan.rights(request.policies), plan.token_secret(identity, secret, expires)]
            await workloads.apply(client, objects, clock, patience=_PATIENCE)
            sets = await client.get("/apis/apps/v1/namespaces/kube-system/daemonsets")
    except* ApiError as refused:  # all objects are applied at once, so several may fail
        problem = next(one for one in refused.exceptions if isinstance(one, ApiError))
    if problem is not None:
        raise Permanent(
            problem.message,
            obj=request.kubeconfig,
            step="make a bootstrap token",
            action="Only an admin has these rights: give another kubeconfig, or a token with --token.",
        ) from problem
    found = plan.addons(item["metadata"]["name"] for item in sets["items"])
    access = ClusterAccess(server, ca_data=admin.ca_data, token=f"{identity}.{secret}", insecure=admin.insecure)
    return KnownCluster(access, addons=found)


async def _check_name(request: Request, known: KnownCluster) -> None:
    joined_as = _joined_as()
    if joined_as and joined_as != request.node:
        raise Conflict(
            f"this machine is already the node {joined_as}",
            obj=f"node {request.node}",
            action="Run `./nodewright leave` first, or join again with the same --node-name.",
        )
    try:
        async with KubeClient(known.access, user_agent=discovery.USER_AGENT) as client:
            node = await client.get(f"/api/v1/nodes/{request.node}")
    except ApiError as error:
        if error.code == 401:
            raise Permanent(
                "the API server does not know this token",
                obj="--token",
                action="Make a new one: kubeadm token create --print-join-command.",
            ) from error
        return  # it does not exist or we may not see it: the agent checks again when it registers
    problem = plan.node_problem(node, request.node)
    if problem and _joined_as() != request.node:
        raise Conflict(
            problem,
            obj=f"node {request.node}",
            action="Choose another --node-name, or delete that Node if its machine is gone.",
        )


async def read_cluster(request: Request, known: KnownCluster) -> None:
    async with KubeClient(known.access, user_agent=discovery.USER_AGENT) as client:
        known.kubelet = (await _config_map(client, "kubelet-config")).get("kubelet", "")
        text = (await _config_map(client, "kubeadm-config")).get("ClusterConfiguration", "")
    configuration = _configuration(text)
    await _check_endpoint(request, known, plan.endpoint_name(configuration))
    networking = object_or_empty(configuration.get("networking"))
    cidrs = request.cluster_cidr or str(networking.get("podSubnet") or "")
    known.cluster_cidrs = tuple(part for part in cidrs.split(",") if part)
    if not known.kubelet:
        known.kubelet = plan.plain_config("", str(networking.get("dnsDomain") or "cluster.local"))


async def _check_endpoint(request: Request, known: KnownCluster, name: str) -> None:
    """Raises Permanent where `name`, by which the cluster's own pods on this node ask the API server, is unknown.

    Before anything runs: pods of the host's network keep the /etc/hosts that they were started with.
    """
    if "nodewright" == request.network == request.proxy or not name or await discovery.resolves(name):
        return
    raise Permanent(
        f"this machine does not know the name {name}, at which the cluster's kube-proxy asks the API server",
        obj=known.access.server,
        step="read the cluster",
        action=f"Add this line to /etc/hosts, then run this again: {plan.hosts_line(known.access.server, name)}",
    )


def _configuration(text: str) -> Json:
    try:
        return object_or_empty(safe_yaml.load(text))
    except yaml.YAMLError as error:
        raise Permanent(
            f"its ClusterConfiguration is not YAML: {error}",
            obj="kube-system/kubeadm-config",
            step="read the cluster",
            action="Correct it, or name the pods' addresses with --cluster-cidr.",
        ) from error


async def _config_map(client: KubeClient, name: str) -> dict[str, str]:
    try:
        return texts_in((await client.get(f"{_MAPS}/{name}")).get("data"))
    except ApiError as error:
        if error.code in (403, 404):
            return {}
        raise


def _write_files(request: Request, known: KnownCluster) -> None:
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)  # first: it says that what follows is ours
    # Readable by root only, as the CIS benchmark requires (4.1.1 to 4.1.10).
    files.write(plan.CA_FILE, known.access.ca_data or b"")
    save_kubeconfig(plan.BOOTSTRAP_CONF, known.access)
    files.write_if_changed(plan.CONFIG, known.kubelet)
    systemd = os.path.isdir("/run/systemd/system")
    files.write_if_changed(DROP_IN, plan.drop_in(systemd=systemd, runtime=plan.runtime_socket(request.runtime)))
    text = plan.proxy_config(request.node, ",".join(known.cluster_cidrs), "")
    files.write_if_changed(plan.PROXY_CONFIG, text)
    if not request.runtime and not os.path.exists("/etc/containerd/config.toml"):
        config = daemon_configs.containerd_config(restrict_oom_score_adj=not oom.may_lower_score(), durable=True)
        files.write("/etc/containerd/config.toml", config, 0o644)


def remove_bootstrap(path: str = plan.BOOTSTRAP_CONF) -> None:
    """Remove the kubeconfig with the bootstrap token, as kubeadm does once the kubelet has its certificate."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _joined_as() -> str:
    """The node name that this machine joined with before, "" if it did not."""
    key = "--hostname-override="
    words = units.arguments(FOLDER, "agent")
    return next((word.removeprefix(key) for word in words if word.startswith(key)), hostname() if words else "")


def _read(path: str) -> bytes:
    try:
        return bytes_of(path, _MOST_CA)
    except OSError as error:
        raise WrongUsage(str(error), obj="--ca-file", action="Name a PEM file.") from error
