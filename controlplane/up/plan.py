"""Which options of `up` go together, and which of them a living cluster can still take. Pure."""

from __future__ import annotations

import ipaddress
import itertools
import json
from collections.abc import Iterable, Set
from dataclasses import replace

from controlplane.cluster.advice import ours
from controlplane.cluster.model import Cluster, Options, numbered
from controlplane.cluster.plan import addons, daemon_configs, load_balancer
from controlplane.config.model import Member, Ranges, Wanted
from controlplane.config.plan.ranges import IPNetwork, networks, problems
from controlplane.up import together
from nodelib.errors import Invalid, WrongUsage

_FIXED = (
    "uplink",
    "durable",
    "proxy_mode",
    "network_policy",
    "load_balancer",
    "load_balancer_pool",
    "storage",
    "ip_family",
    "routed",
    "kubeadm",
    "control_planes",
    "network",
    "cpus",
    "memory",
)
_IN_LISTS = ("members", "custom")  # fields of Options that a file shows in places of their own


def check_options(options: Options, asked: Iterable[str] = ()) -> None:
    """Raises WrongUsage for options that do not go together. `asked`: names of those that somebody gave."""
    unknown = [name for name in options.addon_names if name not in addons.TABLE]
    if unknown:
        raise WrongUsage(
            f"there is no addon {', '.join(unknown)}",
            obj="--addons",
            step="check the options",
            action=f"Choose from: {', '.join(sorted(addons.TABLE))}.",
        )
    for one in together.conflicts(options, frozenset(asked)):
        text = one.said(together.flag)
        raise WrongUsage(text, obj="up", step="check the options", action="See `./nodewright up --help`.")


def check_pool(cluster: Cluster, of_file: Set[str]) -> None:
    """Raises Invalid for addresses of Services that cannot be. `of_file`: the options that a file gives."""
    problem = load_balancer.problem(cluster)
    if not problem:
        return
    given, action = "load_balancer_pool", "Give free addresses of the nodes' subnet, such as its last quarter"
    if (given if cluster.options.load_balancer_pool else "nodes") in of_file:
        without = f"; or `{together.field('load_balancer')}: false`."
        raise Invalid(problem, obj=together.field(given), step="check the cluster's file", action=action + without)
    without = ", or leave the option out; --no-load-balancer does without."
    raise WrongUsage(problem, obj=together.flag(given), step="check the options", action=action + without)


def merge(name: str, known: Options, asked: Options, explicit: Iterable[str]) -> Options:
    """The options of the cluster `name` with those changed that were given explicitly.

    Raises Invalid for one that a living cluster cannot take.
    """
    merged = known
    given = frozenset(explicit)
    for option in sorted(given - {"members", "nodes"}):
        wanted, there = getattr(asked, option), getattr(known, option)
        if wanted == there:
            continue
        if option in _FIXED:
            raise cannot_change(name, together.flag(option), there, wanted)
        if option == "addons":  # addons are only ever added
            wanted = ",".join(dict.fromkeys((*known.addon_names, *asked.addon_names)))
        merged = replace(merged, **{option: wanted})
    return _with_nodes(name, merged, asked, given)


def _with_nodes(name: str, known: Options, asked: Options, given: frozenset[str]) -> Options:
    """The options with the nodes that were asked for. Those that are there keep their addresses and their place."""
    if "nodes" in given and asked.nodes < known.nodes and "members" not in given:
        raise _fewer_nodes(name, known.nodes, asked.nodes, known.all_members[-1].name)
    if "members" not in given:
        count = asked.nodes if "nodes" in given else known.nodes
        return replace(known, nodes=count, members=numbered(known.members, count) if known.members else ())
    wanted = {one.name: one for one in asked.members}
    kept = []
    for there in known.all_members:
        one = wanted.pop(there.name, None)
        if one is None and asked.nodes <= len(asked.members):
            raise _unlisted(name, there.name)
        kept.append(_mended(name, there, one) if one else there)
    members = (*kept, *wanted.values())
    count = max(asked.nodes, len(members))
    return replace(known, nodes=count, members=numbered(members, count))


def _mended(name: str, there: Member, asked: Member) -> Member:
    """A node with what can change while it lives."""
    for field in ("cpus", "memory", "mounts"):
        if getattr(there, field) != getattr(asked, field):
            raise Invalid(
                f"its {field} cannot change while it lives",
                obj=f"node {there.name} of {name}",
                step="check the nodes",
                action=f"Leave its {field} as they were, or run {ours(name, 'node', 'remove', there.name)} "
                "first (not for the node of the control plane, which stays until `down`).",
            )
    return replace(asked, number=there.number)


def _unlisted(name: str, node: str) -> Invalid:
    return Invalid(
        f"the cluster has the node {node}, and the file does not list it",
        obj=name,
        step="check the nodes",
        action=f"Add it to `nodes`, or remove it with {ours(name, 'node', 'remove', node)}.",
    )


def _fewer_nodes(name: str, there: int, asked: int, last: str) -> Invalid:
    return Invalid(
        f"the cluster has {there} nodes, and {asked} were asked for: `up` removes none",
        obj=name,
        step="check the options",
        action=f"Run {ours(name, 'node', 'remove', last)}, or give --nodes {there}.",
    )


def with_ranges(cluster: Cluster, asked: Ranges) -> Cluster:
    """A new cluster with the ranges that were asked for. Raises Invalid."""
    for what, text in (("pod", asked.pods), ("service", asked.services)):
        for one in networks(text):
            if one.version not in cluster.families:
                raise Invalid(
                    f"{one} is of a family that the cluster does not have",
                    obj=f"networking.{what}Subnet",
                    step="check the ranges",
                    action="Leave it out, or give another --ip-family.",
                )
            name = f"{what}_cidr6" if one.version == 6 else f"{what}_cidr"
            cluster = replace(cluster, **{name: str(one)})  # type: ignore[arg-type]  # the names of four texts
    return cluster


def check_overlaps(cluster: Cluster) -> None:
    """Raises Invalid when two of the cluster's ranges overlap, or the pods' has no room for a range of every node."""
    asked = Ranges("", ",".join(cluster.pod_cidrs), ",".join(cluster.service_cidrs))
    for field, text in problems(asked, cluster.families, len(cluster.nodes)):
        raise Invalid(
            text,
            obj=f"{field} of {cluster.name}",
            step="check the ranges",
            action="Give another range under `networking`, or fewer nodes.",
        )
    given = [(what, ipaddress.ip_network(text)) for what, texts in _ranges(cluster) for text in texts]
    for (earlier, one), (later, two) in itertools.combinations(given, 2):
        if one.version == two.version and one.overlaps(two):
            raise Invalid(
                f"{two} of the {later} overlaps {one} of the {earlier}",
                obj=cluster.name,
                step="check the ranges",
                action="Give other ranges under `networking`, or another --subnet.",
            )


def _ranges(cluster: Cluster) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (
        ("nodes", tuple(map(str, cluster.networks))),
        ("pods", cluster.pod_cidrs),
        ("services", cluster.service_cidrs),
    )


def check_ranges_kept(known: Cluster, ranges: Ranges) -> None:
    """Raises Invalid when other ranges are asked for than the living cluster has."""
    for option, there, asked in (
        ("--subnet", known.subnet, ranges.nodes),
        ("podSubnet", ",".join(known.pod_cidrs), ranges.pods),
        ("serviceSubnet", ",".join(known.service_cidrs), ranges.services),
    ):
        if asked and _networks(option, asked) != networks(there):
            raise cannot_change(known.name, option, there, asked)


def _networks(option: str, text: str) -> tuple[IPNetwork, ...]:
    try:
        return networks(text)
    except ValueError as error:
        action = "Give a CIDR, such as 10.89.7.0/24."
        raise WrongUsage(str(error), obj=f"{option} {text}", step="check the options", action=action) from error


def check_kubelets(cluster: Cluster) -> None:
    """Raises Invalid when a kubelet would refuse the configuration that it gets with the file's changes."""
    custom = cluster.options.custom
    if not custom.kubelet and not custom.feature_gates and not any(one.kubelet for one in cluster.members):
        return
    from agent.config.decode import Document, flatten
    from agent.config.load import checked

    for node in cluster.nodes:
        given = flatten(Document("", json.loads(daemon_configs.kubelet_config(cluster, node)), {}))
        _, found = checked(given)
        if found:
            raise Invalid(
                "; ".join(f"{path}: {text}" for path, text in found[:5]),
                obj=f"kubelet configuration of {node.name}",
                step="check the cluster's file (nothing was changed)",
                action="Correct these fields under `kubelet` or `featureGates`.",
            )


def wanted_of(cluster: Cluster, images: str, binaries: str, *, chosen: bool) -> Wanted:
    """The cluster as a file that makes the same one. `chosen`: its subnet is settled, and belongs into the file."""
    options = cluster.options
    shown = {field: getattr(options, field) for field in Options.__dataclass_fields__ if field not in _IN_LISTS}
    # Who asks for what such a cluster cannot have is refused: the file says nothing of it.
    for field, has in (("network_policy", options.enforces_policies), ("load_balancer", options.gives_addresses)):
        if shown[field] and not has:
            del shown[field]
    ranges = Ranges(cluster.subnet if chosen else "", ",".join(cluster.pod_cidrs), ",".join(cluster.service_cidrs))
    members = options.all_members if options.members else ()
    return Wanted(cluster.name, shown, members, options.custom, ranges, images, binaries)


def cannot_change(name: str, option: str, there: object, asked: object) -> Invalid:
    """The error for an option that cannot change while the cluster lives."""
    return Invalid(
        f"{_made_with(option, there)}, and {_asked_for(asked)}: that cannot change while it lives",
        obj=name,
        step="check the options",
        action=f"Run {ours(name, 'down')} first, or choose another --name.",
    )


def _made_with(option: str, there: object) -> str:
    if isinstance(there, bool):
        return f"the cluster was made {'with' if there else 'without'} {option}"
    return f"the cluster has {option} {there}" if there else f"the cluster was made without {option}"


def _asked_for(asked: object) -> str:
    if isinstance(asked, bool):
        return "it was asked for now" if asked else "it was asked to be without it now"
    return f"{asked} was asked for"
