"""Commands that a user can copy from an explanation, for the cluster that was asked about. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from controlplane.cluster.model import DEFAULT_NAME


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong in one sentence, and what to do about it in another, "" when nothing is known."""

    text: str
    action: str = ""


def ours(cluster: str, *words: str) -> str:
    """`./nodewright trace node1 web`, with --name where it is needed."""
    named = ("--name", cluster) if cluster != DEFAULT_NAME else ()
    return f"`./nodewright {shlex.join((*words, *named))}`"


def kubectl(cluster: str, namespace: str, *words: str) -> str:
    """`./nodewright kubectl -- -n shop get pods`"""
    named = ("--name", cluster) if cluster != DEFAULT_NAME else ()
    space = ("-n", namespace) if namespace not in ("", "default") else ()
    return f"`./nodewright {shlex.join(('kubectl', *named, '--', *space, *words))}`"
