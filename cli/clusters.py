"""Finds the clusters of this machine by name, and the one that is meant when no name is given."""

from __future__ import annotations

import difflib
import os
import shlex
import sys
from collections.abc import Sequence

from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.model import DEFAULT_NAME, OUTSIDE, Cluster
from controlplane.supervisor.edge import units
from nodelib.errors import NotFound, Temporary


def find(name: str) -> Cluster:
    """The cluster of that name. Raises NotFound when there is none."""
    cluster = state.load(name)
    if cluster is None:
        there = state.clusters()
        if len(there) > 1 and name == DEFAULT_NAME:
            raise NotFound(
                f"there are several clusters on this machine ({', '.join(there)}), and none has the default name",
                obj=name,
                action=f"Say which one: `{line_with_name(_typed(there) or _example(there))}`.",
            )
        others = f" (there is: {', '.join(there)})" if there else ""
        near = difflib.get_close_matches(name, there, n=1)
        raise NotFound(
            f"no such cluster on this machine{others}",
            obj=name,
            action=f"{f'Did you mean {near[0]}? If not, create' if near else 'Create'} it with {ours(name, 'up')}.",
        )
    return cluster


def sockets(cluster: Cluster | None, program: str, path: str) -> dict[str, str]:
    """By node, the way to the socket at `path` of a node's program; without a cluster this machine's own. "" where the
    program does not run."""
    if cluster is None:
        return {"this node": path}
    found = {}
    for node in cluster.nodes:
        running = units.programs(cluster.unit_dir(node.name)).get(program) or {}
        # Each node has its own /run, so the path leads through the program's mount namespace.
        found[node.name] = f"/proc/{running['pid']}/root{path}" if running.get("alive") else ""
    return found


def reachable(name: str) -> Cluster:
    """find() for commands that would only wait in vain. Raises Temporary for a cluster that is stopped."""
    cluster = find(name)
    refuse_if_stopped(cluster)
    return cluster


def refuse_if_stopped(cluster: Cluster) -> None:
    """Raises Temporary with the way back: what each part of it would say by itself is no help."""
    if is_stopped(cluster):
        raise Temporary(
            "the cluster is stopped, or this machine was restarted",
            obj=cluster.name,
            action=f"Run {ours(cluster.name, 'start')}.",
        )


def place(name: str, kubeconfig: str) -> tuple[str, Cluster | None]:
    """The kubeconfig that leads there, and the cluster unless another one was asked for.

    Raises NotFound, and Temporary for a cluster that is stopped.
    """
    cluster = state.load(name)
    if cluster is not None and not kubeconfig:
        refuse_if_stopped(cluster)
    path = kubeconfig or kubeconfig_of(cluster)
    if not path:
        find(name)  # raises NotFound
    return path, None if kubeconfig else cluster


def own_kubeconfig() -> str:
    """Of this machine: the user's, an admin's or the node's own; "" for none."""
    known = (os.environ.get("KUBECONFIG", ""), "/etc/kubernetes/admin.conf", "/etc/kubernetes/kubelet.conf")
    return next((path for path in known if path and os.path.exists(path)), "")


def kubeconfig_of(cluster: Cluster | None) -> str:
    """An administrator's, or without a cluster this machine's own; "" for none."""
    return cluster.admin_kubeconfig if cluster is not None else own_kubeconfig()


def is_stopped(cluster: Cluster) -> bool:
    """Whether nothing of it is there, as after `stop` or a restart of this machine: neither the link to its nodes,
    which somebody may have removed from one that runs, nor a supervisor."""
    if os.path.exists(f"/sys/class/net/{cluster.host_link}"):
        return False
    names = (*OUTSIDE, *(node.name for node in cluster.nodes))
    try:
        return not any(units.supervisor_pid(cluster.unit_dir(name)) for name in names)
    except PermissionError:  # only root sees them
        return True


def meant(name: str) -> str:
    """The only cluster of this machine, when `name` is the default and there is none of that name."""
    there = state.clusters() if name == DEFAULT_NAME else []
    return there[0] if len(there) == 1 else name


def line_with_name(name: str) -> str:
    """The command line that is running, with this cluster chosen."""
    words = sys.argv[1:]
    if words[:1] == ["kubectl"]:
        at = _typed_at(words, name)
        words = words if at is None else [*words[:at], *words[at + (1 if "=" in words[at] else 2) :]]
        return shlex.join(["./nodewright", "kubectl", "--name", name, *words[1:]])
    end = _end_of_options(words)
    return shlex.join(["./nodewright", *words[:end], "--name", name, *words[end:]])


def _example(there: Sequence[str]) -> str:
    """A cluster to show in a line; none where the line ends it: whoever copies that might end another's."""
    return "NAME" if sys.argv[1:2] in (["down"], ["stop"]) else there[0]


def _typed(there: Sequence[str]) -> str:
    """The cluster whose --name was typed among kubectl's words, where it is kubectl's; "" for none."""
    words = sys.argv[1:]
    return next((name for name in there if words[:1] == ["kubectl"] and _typed_at(words, name) is not None), "")


def _typed_at(words: Sequence[str], name: str) -> int | None:
    before = words[: _end_of_options(words)]
    found = (i for i, word in enumerate(before) if word == f"--name={name}" or before[i : i + 2] == ["--name", name])
    return next(found, None)


def _end_of_options(words: Sequence[str]) -> int:
    """What follows may be the command of a pod."""
    return words.index("--") if "--" in words else len(words)
