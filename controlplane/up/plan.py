"""Which options of `up` go together, and which of them a living cluster can still take. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from controlplane.cluster.model import RELEASE, Options
from controlplane.cluster.plan import addons
from nodelib.errors import Invalid

_FIXED = (
    "uplink",
    "durable",
    "proxy_mode",
    "ip_family",
    "routed",
    "kubeadm",
    "control_planes",
    "network",
    "cpus",
    "memory",
)


def check_options(options: Options) -> None:
    """Raises Invalid for options that do not go together."""
    unknown = [name for name in options.addon_names if name not in addons.TABLE]
    if unknown:
        raise Invalid(
            f"there is no addon {', '.join(unknown)}",
            obj="--addons",
            step="check the options",
            action=f"Choose from: {', '.join(sorted(addons.TABLE))}.",
        )
    if problem := options_problem(options):
        raise Invalid(problem, obj="up", step="check the options", action="See `./nodewright up --help`.")
    if options.agent == "upstream" and (options.routed or options.ip_family != "ipv4"):
        raise Invalid(
            "upstream's kubelet brings no pod network, and the one it gets here has IPv4 and plain routes only",
            obj="--agent upstream",
            step="check the options",
            action="Leave out --routed and --ip-family, or use our agent with --proxy upstream.",
        )


def options_problem(options: Options) -> str:
    """Why these options do not go together, "" if they do."""
    if not options.kubeadm and (options.control_planes > 1 or options.joined or options.network != "nodewright"):
        return "--control-planes, --joined and --network are for clusters that kubeadm raises: give --kubeadm too"
    if options.kubeadm and options.kubernetes != RELEASE:
        return f"kubeadm's control plane runs from images, which are built for {RELEASE} only: leave out --kubernetes"
    if options.control_planes + options.joined > options.nodes:
        return (
            f"{options.nodes} nodes are fewer than {options.control_planes} control planes and {options.joined} joined"
        )
    if options.control_planes > 1 and options.routed:
        return "several control planes need a shared address on the nodes' bridge, and --routed has no bridge"
    return ""


def merge(name: str, known: Options, asked: Options, explicit: Iterable[str]) -> Options:
    """The options of the cluster `name` with those changed that were given explicitly.

    Raises Invalid for one that a living cluster cannot take.
    """
    merged = known
    for option in explicit:
        wanted, there = getattr(asked, option), getattr(known, option)
        if wanted == there:
            continue
        if option in _FIXED or (option == "nodes" and wanted < there):
            raise cannot_change(name, f"--{option.replace('_', '-')}", there, wanted)
        if option == "addons":  # addons are only ever added
            wanted = ",".join(dict.fromkeys((*known.addon_names, *asked.addon_names)))
        merged = replace(merged, **{option: wanted})
    return merged


def cannot_change(name: str, option: str, there: object, asked: object) -> Invalid:
    """The error for an option that cannot change while the cluster lives."""
    return Invalid(
        f"the cluster has {option} {there}, and {asked} was asked for: that cannot change while it lives",
        obj=name,
        step="check the options",
        action=f"Run `./nodewright down --name {name}` first, or choose another --name.",
    )
