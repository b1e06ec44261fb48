"""Mirrors and logins of registries, in containerd's words. Pure.

https://github.com/containerd/containerd/blob/main/docs/hosts.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from controlplane.config.model import Registry

FOLDER = "etc-containerd/certs.d"  # below a node's folder
MARK = "# written by nodewright up; another run replaces it\n"
_ELSEWHERE = {"docker.io": "registry-1.docker.io"}  # where a registry is that goes by another name
Login = tuple[str, str]


def hosts(registry: Registry) -> str:
    """hosts.toml of a registry: its mirrors in their order; the registry itself is asked last."""
    lines = [MARK]
    for number, mirror in enumerate(registry.mirrors):
        lines.append(f'[host.{json.dumps(mirror.url)}]\n  capabilities = ["pull", "resolve"]\n')
        if mirror.skip_verify:
            lines.append("  skip_verify = true\n")
        if mirror.ca_file:
            lines.append(f'  ca = "/etc/containerd/certs.d/{registry.host}/{ca_name(number)}"\n')
    return "".join(lines)


def ca_name(number: int) -> str:
    """The file of a mirror's authority, beside hosts.toml."""
    return f"mirror-{number}.crt"


def logins(given: Mapping[str, Login]) -> str:
    """The part of config.toml with the logins; `given` is (user, password) by registry."""
    lines = []
    for host, (user, password) in sorted(given.items()):
        place = json.dumps(_ELSEWHERE.get(host, host))
        lines.append(f'\n[plugins."io.containerd.cri.v1.images".registry.configs.{place}.auth]')
        lines.append(f"  username = {_text(user)}\n  password = {_text(password)}")
    return "\n".join(lines) + "\n" if lines else ""


def _text(value: str) -> str:
    """A TOML string. Its escapes are JSON's, but for characters beyond the first plane, which stay as they are."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
