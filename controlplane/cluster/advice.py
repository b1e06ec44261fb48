"""Our command lines as messages advise them: quoted, and with --name where the cluster needs it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.cluster.model import DEFAULT_NAME
from nodelib.errors import NodewrightError


def line(cluster: str, *words: str) -> str:
    """`line("lab", "why", "web-0")` is "./nodewright why web-0 --name lab"."""
    return shlex.join(("./nodewright", *words, *_named(cluster)))


def kubectl_line(cluster: str, *words: str, namespace: str = "") -> str:
    """`kubectl_line("lab", "get", "pods", namespace="shop")` is "./nodewright kubectl --name lab -n shop get pods"."""
    space = ("-n", namespace) if namespace not in ("", "default") else ()
    return shlex.join(("./nodewright", "kubectl", *_named(cluster), *space, *words))


def ours(cluster: str, *words: str) -> str:
    """line() in backticks, as it stands in a sentence."""
    return f"`{line(cluster, *words)}`"


def kubectl(cluster: str, *words: str, namespace: str = "") -> str:
    """kubectl_line() in backticks."""
    return f"`{kubectl_line(cluster, *words, namespace=namespace)}`"


@contextmanager
def advised(action: str) -> Iterator[None]:
    """Errors of the block that say nothing about what to do, such as those of commands, say this."""
    try:
        yield
    except NodewrightError as error:
        error.action = error.action or action
        raise


def _named(cluster: str) -> tuple[str, ...]:
    return ("--name", cluster) if cluster != DEFAULT_NAME else ()
