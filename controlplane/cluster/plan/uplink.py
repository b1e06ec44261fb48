"""The host's rules that let a cluster's nodes reach the world, and let nothing in. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.cluster.model import Cluster


@dataclass(frozen=True, slots=True)
class HostRule:
    """One iptables rule; its arguments include a comment with the name of its cluster."""

    table: str
    chain: str
    arguments: tuple[str, ...]


def comment(cluster: str) -> str:
    """The comment by which `down` finds the rules among others."""
    return f"nodewright:{cluster}"


def rules(cluster: Cluster) -> tuple[HostRule, ...]:
    """Masquerade what leaves the nodes' subnet, forward it out, and let answers back in."""
    mark = ("-m", "comment", "--comment", comment(cluster.name))
    link, subnet = cluster.host_link, cluster.subnet
    return (
        HostRule("nat", "POSTROUTING", ("-s", subnet, "!", "-o", link, *mark, "-j", "MASQUERADE")),
        HostRule("filter", "FORWARD", ("-i", link, "!", "-o", link, *mark, "-j", "ACCEPT")),
        HostRule(
            "filter",
            "FORWARD",
            ("-o", link, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", *mark, "-j", "ACCEPT"),
        ),
    )


def owned(saved: str, cluster: str) -> list[str]:
    """The lines of `iptables -S CHAIN` with the cluster's comment."""
    marks = (f'--comment "{comment(cluster)}"', f"--comment {comment(cluster)}")
    return [line for line in saved.splitlines() if any(f"{mark} " in f"{line} " for mark in marks)]
