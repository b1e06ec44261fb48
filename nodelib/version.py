"""The release of Kubernetes that this project follows: what agent and proxy call themselves, what `up` builds."""

from __future__ import annotations

KUBERNETES_VERSION = "v1.37.1"
KUBERNETES_MINOR = "1.37"  # as user agents say it
