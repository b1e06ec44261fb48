"""From the command line and the KubeletConfiguration files that it names to the agent's Settings.

Precedence as upstream's (cmd/kubelet/app/server.go): flags over --config-dir drop-ins over --config over defaults
(agent/config/schema.py).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from agent.common.model.binding import flag_source
from agent.config import labels, load
from agent.config.bind import bind
from agent.config.decode import nested
from agent.config.flags import flagz, parse_flags
from agent.settings import Settings
from nodelib.errors import Invalid


def parse(argv: Sequence[str], *, hostname: str | None = None) -> Settings:
    """Read the command line (without the program's name) and the files that it names.

    Raises Invalid, which names the flag, or the file, line and field; SystemExit(0) after --help and --version.
    """
    flags = parse_flags(argv)
    config = load.complete(flags)
    own = _checked(flags.own, hostname or socket.gethostname())
    return bind(
        Settings,
        {**config, **load.enabled_gates(config), **{flag_source(name): value for name, value in own.items()}},
        notices=load.notices(config, flags),
        effective=nested(config),
        flags=flagz(flags),
    )


def _checked(own: Mapping[str, Any], hostname: str) -> dict[str, Any]:
    """The flags that have no field, with the node's name and addresses as they are used. Raises Invalid."""
    name = _node_name(own["hostname-override"] or hostname)
    for problem in labels.problems(own["node-labels"]):
        raise Invalid(problem, obj="--node-labels", action="Correct the labels, or set them through the API.")
    ips = _node_ips(own["node-ip"])
    if own["bootstrap-kubeconfig"] and not own["kubeconfig"]:
        raise Invalid(
            "needs a kubeconfig to write",
            obj=f"--bootstrap-kubeconfig {own['bootstrap-kubeconfig']}",
            action="Name the file with --kubeconfig.",
        )
    if own["exit-on-lock-contention"] and not own["lock-file"]:
        raise Invalid(
            "it needs --lock-file",
            obj="--exit-on-lock-contention",
            step="read the command line",
            action="Give the lock file too, or leave this flag out.",
        )
    return {**own, "hostname-override": name, "node-ip": ips}


def _node_name(text: str) -> str:
    name = text.strip().lower()
    problem = labels.name_problem(name)
    if problem:
        raise Invalid(
            f"{name!r} {problem}",
            obj="node name",
            action="Give a valid name with --hostname-override (lower case letters, digits, '-' and '.').",
        )
    return name


def _node_ips(text: str) -> tuple[str, ...]:
    problem, ips = labels.node_ips(text)
    if problem:
        raise Invalid(problem, obj=f"--node-ip {text}", action="Give one address, or one IPv4 and one IPv6 address.")
    return ips
