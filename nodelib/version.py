"""The Kubernetes release that this project follows, which agent and proxy report, and upstream's skew policy. Pure."""

from __future__ import annotations

import re

KUBERNETES_VERSION = "v1.37.1"
KUBERNETES_MINOR = "1.37"  # for user agents
_OLDER_AT_MOST = 3  # minor versions that a node may be behind its API server


def skew(node: str, server: str) -> str:
    """Why a node's daemon of version `node` is not supported with an API server of version `server`.

    Both are gitVersions. "" if it is supported, or if one is not a version.
    https://kubernetes.io/releases/version-skew-policy/
    """
    ours, theirs = _minor(node), _minor(server)
    if not ours or not theirs:
        return ""
    if ours > theirs:
        return (
            f"{node} is newer than the API server, {server}: Kubernetes supports nodes of its version and older;"
            f" this one goes on with the APIs that {server} serves. Upgrade the API server before its nodes"
        )
    if ours[0] < theirs[0] or ours[1] + _OLDER_AT_MOST < theirs[1]:
        return (
            f"{node} is more than {_OLDER_AT_MOST} minor versions older than the API server, {server}:"
            " Kubernetes does not support that. Upgrade this node"
        )
    return ""


def _minor(version: str) -> tuple[int, int] | None:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None
