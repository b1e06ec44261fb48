"""How to reach an API server: a kubeconfig, read into a value and written from one.

Follows k8s.io/client-go/tools/clientcmd/api/v1. Exec plugins and auth providers are not supported: a node's kubeconfig
has a certificate or a token.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from dataclasses import dataclass, field

import yaml

from nodelib import files, safe_yaml
from nodelib.errors import Invalid
from nodelib.json_values import Json

_MOST_CA = 16 << 20  # bytes


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Server URL and credentials. Data are PEM bytes; files are read again when they change."""

    server: str
    ca_data: bytes | None = None
    cert_data: bytes | None = None
    key_data: bytes | None = field(default=None, repr=False)
    cert_file: str | None = None
    key_file: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    tls_server_name: str | None = None
    insecure: bool = False


def load_kubeconfig(path: str) -> ClusterAccess:
    """Read the current context of a kubeconfig file. Raises Invalid, naming the file and the field."""
    if not path:
        raise Invalid(
            "none is given", obj="kubeconfig", step="find the API server", action="Give one with --kubeconfig FILE."
        )
    try:
        config = safe_yaml.load_file(path)
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise _wrong(path, str(error)) from error
    if not isinstance(config, dict):
        raise _wrong(path, "not a mapping")
    context = _named(config, "contexts", "context", config.get("current-context"), path)
    cluster = _named(config, "clusters", "cluster", context.get("cluster"), path)
    user = _named(config, "users", "user", context.get("user"), path)
    if not isinstance(cluster.get("server"), str):
        raise _wrong(path, "the cluster has no server")
    folder = os.path.dirname(os.path.abspath(path))
    return ClusterAccess(
        server=cluster["server"].rstrip("/"),
        ca_data=_data(cluster, "certificate-authority", folder, path),
        cert_data=_inline(user, "client-certificate", path),
        key_data=_inline(user, "client-key", path),
        cert_file=_file(user, "client-certificate", folder),
        key_file=_file(user, "client-key", folder),
        token=_text(user, "token", path),
        token_file=_file(user, "tokenFile", folder),
        tls_server_name=_text(cluster, "tls-server-name", path),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
    )


def render_kubeconfig(access: ClusterAccess, *, cluster: str = "default-cluster", user: str = "default-auth") -> str:
    """A kubeconfig with the same content, as JSON (which is YAML)."""
    place: Json = {"server": access.server}
    if access.ca_data:
        place["certificate-authority-data"] = base64.b64encode(access.ca_data).decode()
    if access.tls_server_name:
        place["tls-server-name"] = access.tls_server_name
    if access.insecure:
        place["insecure-skip-tls-verify"] = True
    wanted = {
        "client-certificate": access.cert_file,
        "client-key": access.key_file,
        "client-certificate-data": access.cert_data and base64.b64encode(access.cert_data).decode(),
        "client-key-data": access.key_data and base64.b64encode(access.key_data).decode(),
        "token": access.token,
        "tokenFile": access.token_file,
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": place}],
        "users": [{"name": user, "user": {key: value for key, value in wanted.items() if value}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }
    return json.dumps(document, indent=1) + "\n"


def save_kubeconfig(path: str, access: ClusterAccess) -> None:
    """Write a kubeconfig atomically, readable by its owner only (0600). Raises OSError."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o755, exist_ok=True)
    files.replace(path, render_kubeconfig(access), durable=True)


def _named(config: Json, kind: str, field_name: str, name: object, path: str) -> Json:
    listed = config.get(kind)
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(field_name), dict):
            found: Json = entry[field_name]
            return found
    raise _wrong(path, f"{kind} has no entry named {name!r}")


def _text(entry: Json, key: str, path: str) -> str | None:
    found = entry.get(key)
    if found is not None and not isinstance(found, str):
        raise _wrong(path, f"{key} is not text")
    return found


def _inline(entry: Json, key: str, path: str) -> bytes | None:
    text = entry.get(f"{key}-data")
    if not text:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise _wrong(path, f"{key}-data is not base64: {error}") from error


def _file(entry: Json, key: str, folder: str) -> str | None:
    name = entry.get(key)
    return os.path.join(folder, name) if isinstance(name, str) and name else None


def _data(entry: Json, key: str, folder: str, path: str) -> bytes | None:
    inline = _inline(entry, key, path)
    file = _file(entry, key, folder)
    if inline is not None or file is None:
        return inline
    try:
        return files.bytes_of(file, _MOST_CA)
    except OSError as error:
        raise _wrong(path, f"{key}: {error}") from error


def _wrong(path: str, problem: str) -> Invalid:
    return Invalid(
        problem,
        obj=path,
        step="read kubeconfig",
        action="Check it with `kubectl config view --kubeconfig FILE`. The files that it names must exist, too.",
    )
