"""Which options of `up` do not go together, in the words of the command line or of a file. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from string import Formatter

from controlplane.cluster.model import RELEASE, Options
from controlplane.config.plan.fields import Problem

Spell = Callable[[str], str]
# Fields of a file whose names are not those of the options.
_FIELDS = {
    "ip_family": "networking.ipFamily",
    "routed": "networking.routed",
    "network_policy": "networking.networkPolicy",
    "load_balancer": "networking.loadBalancer",
    "load_balancer_pool": "networking.loadBalancerPool",
    "control_planes": "kubeadm.controlPlanes",
    "joined": "kubeadm.joined",
    "network": "kubeadm.network",
}


@dataclass(frozen=True, slots=True)
class Conflict:
    """Options of which one has to go. `text` has their names in braces."""

    text: str

    @property
    def options(self) -> tuple[str, ...]:
        """Their names, each once, in the order of the text."""
        return tuple(dict.fromkeys(name for _, name, _, _ in Formatter().parse(self.text) if name))

    def said(self, spell: Spell) -> str:
        return self.text.format_map({name: spell(name) for name in self.options})


def flag(option: str) -> str:
    """As the command line writes it."""
    return f"--{option.replace('_', '-')}"


def field(option: str) -> str:
    """As a file writes it."""
    return _FIELDS.get(option, option)


def in_file(conflicts: Iterable[Conflict], given: Set[str]) -> Iterator[Problem]:
    """Those that a file is to blame for: it gives one of the options at least. `given`: what it gives."""
    for one in conflicts:
        if blamed := [name for name in one.options if name in given]:
            path = tuple(field(blamed[0]).split("."))
            yield Problem(path, one.said(field), "Correct one of these fields.")


def conflicts(options: Options, asked: Set[str] = frozenset()) -> Iterator[Conflict]:
    """What is on by default may be left out unless it was `asked` for."""
    return (Conflict(text) for wrong, text in _looked_at(options, asked) if wrong)


def _looked_at(options: Options, asked: Set[str]) -> Iterator[tuple[bool, str]]:
    yield (
        not options.kubeadm and (options.control_planes > 1 or options.joined > 0 or options.network != "nodewright"),
        "{control_planes}, {joined} and {network} are for clusters that kubeadm raises: give {kubeadm} too",
    )
    yield (
        options.kubeadm and options.kubernetes != RELEASE,
        f"kubeadm's control plane runs from images, which are built for {RELEASE} only: leave out {{kubernetes}} or"
        " {kubeadm}",
    )
    yield (
        options.control_planes + options.joined > options.nodes,
        f"{options.nodes} {{nodes}} are fewer than {options.control_planes} {{control_planes}} and"
        f" {options.joined} {{joined}}",
    )
    yield (
        "network_policy" in asked and options.network_policy and not options.enforces_policies,
        "{network_policy} needs our agent, on nodes that `up` sets up: leave out {kubeadm}, and {agent} upstream",
    )
    yield (
        "load_balancer" in asked and options.load_balancer and not options.gives_addresses,
        "{load_balancer} needs nodes on one bridge that `up` itself sets up: leave out {routed} and {kubeadm}",
    )
    yield (
        bool(options.load_balancer_pool) and not options.gives_addresses,
        "{load_balancer_pool} needs {load_balancer}, and nodes on one bridge that `up` itself sets up: leave out"
        " {routed} and {kubeadm}",
    )
    yield (
        options.storage and not options.provides_volumes,
        "{storage} is for clusters that `up` sets up itself: leave out {kubeadm}",
    )
    yield (
        options.control_planes > 1 and options.routed,
        "several {control_planes} need a shared address on the nodes' bridge, and {routed} has no bridge",
    )
    yield (
        options.agent == "upstream" and (options.routed or options.ip_family != "ipv4"),
        "upstream's kubelet ({agent}) brings no pod network, and the one it gets here has IPv4 and plain routes only:"
        " leave out {routed} and {ip_family}, or use our agent with {proxy} upstream",
    )
