"""Logins of registries, and the files by which containerd knows mirrors. Passwords are in files of root's alone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.plan import registries
from controlplane.config.model import Registry
from controlplane.machine.edge import files
from nodelib.errors import Invalid
from nodelib.files import bytes_of, text_of

_LONGEST = 8192  # bytes of a password: tokens of clouds have some thousands
_LARGEST_CA = 1 << 20


def read(cluster: Cluster, environment: Mapping[str, str]) -> dict[str, registries.Login]:
    """The logins that the cluster's file asks for: a password that cannot be read now is the one of the last `up`.

    Raises Invalid when there is none.
    """
    known = load(cluster)
    found = {}
    for one in cluster.options.custom.registries:
        if not one.username:
            continue
        password = _password(one, environment)
        if password is None:
            if one.host not in known:
                raise _missing(one)
            password = known[one.host][1]
        found[one.host] = (one.username, password)
    return found


def load(cluster: Cluster) -> dict[str, registries.Login]:
    """The logins of the last `up`, by registry."""
    try:
        stored = json.loads(text_of(_path(cluster)) or "{}")
        return {str(host): (str(user), str(password)) for host, (user, password) in stored.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def save(cluster: Cluster, found: Mapping[str, registries.Login]) -> None:
    """Keep them for later runs, in a file of root's alone."""
    if found:
        files.write_if_changed(_path(cluster), json.dumps(dict(found)), 0o600)
    elif os.path.exists(_path(cluster)):
        os.unlink(_path(cluster))


def _path(cluster: Cluster) -> str:
    return os.path.join(cluster.dir, "logins.json")


def _password(registry: Registry, environment: Mapping[str, str]) -> str | None:
    if registry.password_env:
        text = environment.get(registry.password_env)
    else:
        try:
            text = bytes_of(registry.password_file, _LONGEST + 2).decode()
        except (FileNotFoundError, UnicodeDecodeError):
            text = None
    if text is None:
        return None
    text = text.rstrip("\r\n")
    if not text or not text.isprintable() or len(text) > _LONGEST:
        raise Invalid(
            "holds no password (one line of at most 8192 printable characters)",
            obj=registry.password_env or registry.password_file,
            step=f"read the login of {registry.host}",
            action="Write the password there, and nothing else.",
        )
    return text


def _missing(registry: Registry) -> Invalid:
    what = f"the environment variable {registry.password_env}" if registry.password_env else registry.password_file
    hint = f"export {registry.password_env}=…" if registry.password_env else "write the password into that file"
    return Invalid(
        f"{what} is not there",
        obj=f"login of {registry.host}",
        step="read its password",
        action=f"Run `up` again with it ({hint}); with sudo, `sudo -E` passes variables on.",
    )


def check_authorities(cluster: Cluster) -> None:
    """Raises Invalid when the authority of a mirror cannot be read."""
    for registry in cluster.options.custom.registries:
        for mirror in registry.mirrors:
            if mirror.ca_file:
                _authority(mirror.ca_file)


def _authority(path: str) -> str:
    try:
        text = bytes_of(path, _LARGEST_CA).decode("ascii", errors="replace")
    except OSError as error:
        raise _no_authority(f"cannot be read: {error.strerror}", path) from error
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise _no_authority("is not a PEM file with a certificate", path)
    return text


def _no_authority(words: str, path: str) -> Invalid:
    return Invalid(
        words,
        obj=path,
        step="read the authority of a registry's mirror",
        action="Correct `caFile` of the mirror in the cluster's file, or leave it out.",
    )


def write_hosts(cluster: Cluster, node: Node) -> None:
    """hosts.toml of each registry with mirrors; those of registries that the file no longer names are removed."""
    own = cluster.node_dir(node.name)
    wanted = {one.host: one for one in cluster.options.custom.registries if one.mirrors}
    if wanted or os.path.isdir(f"{own}/{registries.FOLDER}"):
        with files.inside(own, registries.FOLDER) as folder:
            for there in Path(folder).iterdir():
                ours = text_of(str(there / "hosts.toml")).startswith(registries.MARK)
                if ours and there.name not in wanted and not there.is_symlink():
                    shutil.rmtree(there)
    for host, registry in wanted.items():
        with files.inside(own, f"{registries.FOLDER}/{host}") as folder:
            for number, mirror in enumerate(registry.mirrors):
                if mirror.ca_file:
                    text = _authority(mirror.ca_file)
                    files.write_if_changed(f"{folder}/{registries.ca_name(number)}", text, 0o644)
            files.write_if_changed(f"{folder}/hosts.toml", registries.hosts(registry), 0o644)
