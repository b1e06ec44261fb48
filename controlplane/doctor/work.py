"""Reads facts and judges them: of the machine (`doctor` shows all findings, `up` stops at the fatal ones), of nodes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import cache_root, state_root
from controlplane.cluster.model import Cluster, Node, Options
from controlplane.cluster.plan import components
from controlplane.cluster.work import network
from controlplane.doctor.edge import configz, daemons, machine, nodes, pod_network
from controlplane.doctor.model import FileFact, NodeFacts, ProxyFacts
from controlplane.doctor.plan import cis, cis_kubelet, kubelet_files, netcheck, registration
from controlplane.doctor.plan.cis import ControlFinding
from controlplane.doctor.plan.preflight import Finding, fatal, preflight, warnings
from controlplane.machine.edge import namespaces
from controlplane.prebuilt.work import find
from nodelib import command, safe_yaml
from nodelib.errors import NodewrightError, NotFound, Permanent

PACKAGES_FILE = "packages.txt"
_JOINED = "/var/lib/kubelet/nodewright"  # the supervisor's folder of a machine that joined (controlplane.host)
_METRICS_PORT = 10249


async def examine(project: str, binaries_dir: Path | None = None, release: Path | None = None) -> tuple[Finding, ...]:
    """Check this machine. `release`: the folder of one, whose programs need not be built."""
    await machine.load_modules()
    facts = await machine.read_facts(
        state_root=state_root(),
        cache_root=cache_root(),
        built=await asyncio.to_thread(is_built, binaries_dir, release),
        packages=debian_packages(project),
        networks=await asyncio.to_thread(network.networks_in_use),
    )
    return preflight(facts)


async def examine_nodes(name: str) -> tuple[Finding, ...]:
    """Check the pod networks of this machine (as a node of some cluster), and the cluster `name`: its Nodes as the API
    server has them, and each node's pod network and routes."""
    found: list[Finding] = []
    if os.path.exists("/sys/class/net/nw0"):
        found += (await _check_network("this machine", "", ""))[0]
    cluster = state.load_readable(name)
    if cluster is not None:
        found += await _check_cluster(cluster)
    others = [one for one in state.clusters() if one != name]
    names = f"{', '.join(others)} (`./nodewright doctor --name NAME` checks their nodes)" if others else "none"
    return (*found, Finding("other clusters", "ok", names))


async def _check_cluster(cluster: Cluster) -> list[Finding]:
    points = set(await asyncio.to_thread(namespaces.mount_points))
    here = [node.name for node in cluster.nodes if cluster.namespace(node.name, "net") in points]
    (objects, problem), *seen = await asyncio.gather(
        nodes.listed(cluster.admin_kubeconfig),
        *(
            _check_network(f"{cluster.name}/{one}", cluster.namespace(one, "net"), cluster.dns_service, cluster.name)
            for one in here
        ),
    )
    found = [*registration.registration(cluster, objects, problem)]
    gone = [node.name for node in cluster.nodes if node.name not in here]
    found += [registration.down(cluster, one) for one in gone]
    ranges = registration.pod_ranges(objects or ())
    for node, (findings, routes) in zip(here, seen, strict=True):
        found += findings
        if routes is not None and cluster.options.network == "nodewright":
            log = f"{cluster.log_dir(node)}/agent.log"
            found += registration.missing_routes(f"{cluster.name}/{node}", node, routes, ranges, log)
    return found


async def _check_network(
    name: str, net: str, dns: str, cluster: str = ""
) -> tuple[tuple[Finding, ...], list[dict[str, Any]] | None]:
    """The findings, and the routes there if there is a pod network."""
    argv = [sys.executable, "-I", "-S", pod_network.__file__, dns]
    try:
        done = await command.run(namespaces.entered(net, argv) if net else argv, timeout=60)
        seen = json.loads(done.stdout)
    except (command.CommandError, ValueError) as error:
        return (Finding(f"{name}: pod network", "warning", f"could not be checked: {str(error)[-200:]}"),), None
    here = netcheck.place(name, seen, cluster)
    return netcheck.check(here), seen["routes"] if netcheck.has_pods(here) else None


async def refuse_if_fatal(project: str, binaries_dir: Path | None = None, release: Path | None = None) -> str:
    """Which checks warn, in words. Raises Permanent that lists every fatal finding with its fix."""
    findings = await examine(project, binaries_dir, release)
    found = fatal(findings)
    if found:
        lines = [f"{finding.check}: {finding.found}. Fix: {finding.fix}" for finding in found]
        raise Permanent(
            "\n    ".join(lines), step="preflight", action="Fix these, then check again with `./nodewright doctor`."
        )
    return warnings(findings)


def debian_packages(project: str) -> tuple[str, ...]:
    """The names in the launcher's list of packages, without those that only a build needs."""
    path = Path(project, "controlplane", PACKAGES_FILE)
    lines = (line.partition("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
    return tuple(line[0] for line in lines if line and line[1:] != ["build"])


def is_built(binaries_dir: Path | None, folder: Path | None) -> bool:
    """Whether nothing has to be built: each program is in the cache, in that directory, or in a release."""
    from controlplane.binaries.model import TABLE
    from controlplane.binaries.work import key_of

    try:
        release = find(folder)
    except NodewrightError:  # whoever wants to use it says why it cannot be
        release = None
    for name in components.needed(Options()):
        key = key_of(TABLE[name])
        there = Path(cache_root(), "bin", key, name).exists() or (binaries_dir and (binaries_dir / name).exists())
        if not there and not (release and release.has(key, TABLE[name].name)):
            return False
    return True


async def examine_controls(name: str, kubeconfig: str = "") -> tuple[ControlFinding, ...]:
    """Judge the nodes of the cluster `name`, and this machine if a kubelet runs on it, by the CIS benchmark.

    `kubeconfig`: how to ask the API server for a kubelet's configuration. Raises NotFound when there is no kubelet.
    """
    places = _places(name, kubeconfig)
    found = await asyncio.gather(*map(_node_facts, places))
    own = found[-1] is not None
    if len(places) == 1 and not own:
        raise NotFound(
            "no kubelet runs on this machine",
            obj="doctor --cis",
            step="find the kubelet",
            action="Start it, or name a cluster of this machine with --name.",
        )
    wanted = zip(places, found, strict=True) if own else zip(places[:-1], found[:-1], strict=True)
    why = f"no kubelet runs on this node ({ours(name, 'status')} shows what does)"
    judged = [cis.judge(one) if one is not None else cis.unjudged(place.node, why) for place, one in wanted]
    return tuple(finding for one in judged for finding in one)


def _places(name: str, kubeconfig: str) -> list[_Place]:
    """The nodes of the cluster, if there is one of that name, and this machine as the last."""
    cluster = state.load_readable(name)
    places = [] if cluster is None else [_place(cluster, node, kubeconfig) for node in cluster.nodes]
    known = (os.environ.get("KUBECONFIG", ""), "/etc/kubernetes/admin.conf")
    own = kubeconfig or next((path for path in known if path and os.path.exists(path)), "")
    return [*places, _Place(socket.gethostname().lower(), "/proc/self/ns/net", "/proc/self/ns/mnt", own, "")]


def _place(cluster: Cluster, node: Node, kubeconfig: str) -> _Place:
    return _Place(
        node.name,
        cluster.namespace(node.name, "net"),
        cluster.namespace(node.name, "mnt"),
        kubeconfig or cluster.admin_kubeconfig,
        os.path.join(cluster.unit_dir(node.name), "spec.json"),
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a kubelet may run: its node, the files of its namespaces, how to ask the API server, what may start it."""

    node: str
    net: str
    mnt: str
    kubeconfig: str
    specification: str


async def _node_facts(place: _Place) -> NodeFacts | None:
    found = await asyncio.to_thread(_daemons, place)
    kubelet = found.kubelet if found else None
    if found is None or kubelet is None:
        return None
    flags = kubelet_files.flags_of(kubelet.words)
    node = flags.get("hostname-override") or place.node
    files = await asyncio.to_thread(_config_files, kubelet, flags)
    facts = NodeFacts(
        node=node,
        flags=flags,
        starts=await asyncio.to_thread(_starts, kubelet, place.specification),
        kubeconfig=(kubelet.fact(flags["kubeconfig"]),) if flags.get("kubeconfig") else (),
        configs=tuple(map(kubelet.fact, files)),
        serving=_serving(kubelet, flags.get("cert-dir") or "/var/lib/kubelet/pki"),
        proxy=await asyncio.to_thread(_proxy_facts, found),
    )
    facts = await _with_configuration(facts, kubelet, place.kubeconfig, files)
    authority = str(cis_kubelet.value(facts.configuration, "authentication.x509.clientCAFile", ""))
    return replace(facts, authorities=(kubelet.fact(authority),) if authority else ())


def _daemons(place: _Place) -> daemons.Daemons | None:
    try:
        return daemons.daemons(daemons.namespace(place.net), daemons.namespace(place.mnt))
    except OSError:
        return None  # the node's namespaces are not there


def _config_files(kubelet: daemons.Daemon, flags: Mapping[str, str]) -> tuple[str, ...]:
    folder = flags.get("config-dir", "").rstrip("/")
    drop_ins = kubelet.named(folder, ".conf") if folder else ()
    return ((flags["config"],) if flags.get("config") else ()) + drop_ins


def _starts(kubelet: daemons.Daemon, specification: str) -> tuple[FileFact, ...]:
    """What starts the kubelet: a supervisor's specification (of `up` or `join`), else unit files."""
    joined = kubelet.files(f"{_JOINED}/spec.json")
    if not joined and specification and os.path.exists(specification):
        return (daemons.file_fact(specification, specification),)
    return tuple(map(kubelet.fact, joined or daemons.unit_files(kubelet)))


def _serving(kubelet: daemons.Daemon, folder: str) -> tuple[FileFact, ...]:
    """The pair that the cluster issued, else the kubelet's own."""
    issued = kubelet.fact(f"{folder}/kubelet-server-current.pem")
    return (issued,) if not issued.problem else tuple(kubelet.fact(f"{folder}/kubelet.{one}") for one in ("crt", "key"))


async def _with_configuration(
    facts: NodeFacts, kubelet: daemons.Daemon, kubeconfig: str, files: tuple[str, ...]
) -> NodeFacts:
    """The configuration that the kubelet itself shows; else that of its files and flags, which it has read once."""
    problems = []
    try:
        found = await configz.by_socket(kubelet.place(configz.SOCKET))
        return replace(facts, configuration=found, source="/configz at the agent's socket")
    except NodewrightError as error:
        problems.append(str(error))
    try:
        if kubeconfig:
            found = await configz.by_api(kubeconfig, facts.node)
            return replace(facts, configuration=found, source="/configz through the API server")
    except NodewrightError as error:
        problems.append(str(error))
    try:
        texts = await asyncio.to_thread(lambda: [kubelet.read(path) for path in files])
        documents = [safe_yaml.load(text) for text in texts]
        found = kubelet_files.from_files(facts.flags, [one for one in documents if isinstance(one, dict)])
        source = f"{', '.join((*files, 'flags'))}: the kubelet itself could not be asked ({problems[-1]})"
        return replace(facts, configuration=found, source=source)
    except (OSError, yaml.YAMLError) as error:
        problems.append(str(error))
    return replace(facts, unknown="; ".join(problems))


def _proxy_facts(found: daemons.Daemons) -> ProxyFacts | None:
    proxy = found.proxy
    if proxy is None:
        # A container may call itself kube-proxy: nothing of its files is read, what it listens on is seen.
        pod = found.pod_proxy
        return ProxyFacts(in_pod=True, listening=daemons.listening(pod, _METRICS_PORT)) if pod else None
    flags = kubelet_files.flags_of(proxy.words)
    try:
        document = safe_yaml.load(proxy.read(flags["config"])) if flags.get("config") else None
        if document is not None and not isinstance(document, dict):
            return ProxyFacts(problem=f"{flags['config']}: no KubeProxyConfiguration")
        kubeconfig, metrics = kubelet_files.proxy_settings(flags, document)
        port = metrics.rpartition(":")[2]
        listening = daemons.listening(proxy, int(port)) if port.isdecimal() else ()
        return ProxyFacts((proxy.fact(kubeconfig),) if kubeconfig else (), False, metrics, listening)
    except (OSError, yaml.YAMLError) as error:
        return ProxyFacts(problem=str(error))
