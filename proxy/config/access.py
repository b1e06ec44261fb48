"""How the proxy reaches the API server: by kubeconfig, by --master, or by the service account of its Pod."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from nodelib.errors import Invalid
from nodelib.kube.access import ClusterAccess, load_kubeconfig

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def find_access(kubeconfig: str, master: str, env: Mapping[str, str] | None = None) -> ClusterAccess:
    """`env` replaces os.environ in tests. Raises Invalid, which says what is missing."""
    env = os.environ if env is None else env
    if kubeconfig:
        access = load_kubeconfig(kubeconfig)
        return replace(access, server=master.rstrip("/")) if master else access
    if master:
        return ClusterAccess(server=master.rstrip("/"))
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise Invalid(
            "neither a kubeconfig nor --master is given, and this is not a Pod",
            obj="proxy",
            step="find the API server",
            action="Give clientConnection.kubeconfig in the configuration, or --kubeconfig.",
        )
    try:
        with open(f"{_ACCOUNT}/ca.crt", "rb") as file:
            ca_data = file.read()
    except OSError as error:
        raise Invalid(str(error), obj="service account", step="read ca.crt") from error
    shown = f"[{host}]" if ":" in host else host
    return ClusterAccess(server=f"https://{shown}:{port}", ca_data=ca_data, token_file=f"{_ACCOUNT}/token")
