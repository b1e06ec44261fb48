"""The arguments of a call: CNI_* variables of its environment (section "Parameters"). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cni.model import AttachmentKey
from cni.spec.errors import environment_error
from cni.spec.versions import SINCE

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")  # of a container or network
LONGEST_NAME = 200  # it becomes part of file names
_LONGEST_IFNAME = 15  # IFNAMSIZ - 1


@dataclass(frozen=True, slots=True)
class Args:
    """The environment of one call. `netns`: the path of the namespace, whose descriptor is passed separately."""

    command: str
    container_id: str = ""
    ifname: str = ""
    netns: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> AttachmentKey:
        return AttachmentKey(self.container_id, self.ifname)

    @property
    def pod(self) -> str:
        """namespace/name if a Kubernetes runtime is calling, else ""."""
        namespace, name = self.extra.get("K8S_POD_NAMESPACE", ""), self.extra.get("K8S_POD_NAME", "")
        return f"{namespace}/{name}" if name else ""


def parse_args(env: Mapping[str, str]) -> Args:
    """Read the CNI_* variables. Raises CNIError(INVALID_ENVIRONMENT), naming the missing or malformed one."""
    command = env.get("CNI_COMMAND", "")
    if command not in SINCE:
        raise environment_error("CNI_COMMAND", command, "one of " + ", ".join(SINCE))
    container, ifname, netns = (env.get(name, "") for name in ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"))
    if command in ("ADD", "DEL", "CHECK"):
        if not NAME.fullmatch(container) or len(container) > LONGEST_NAME:
            raise environment_error(
                "CNI_CONTAINERID", container, "a letter or digit, then letters, digits, '_', '.', '-', 200 at most"
            )
        if not valid_ifname(ifname):
            raise environment_error(
                "CNI_IFNAME", ifname, "an interface name: 1 to 15 characters, no '/', ':' or blanks"
            )
        if not netns and command != "DEL":
            raise environment_error("CNI_NETNS", netns, "the path of a network namespace")
    return Args(command, container, ifname, netns, _parse_cni_args(env.get("CNI_ARGS", "")))


def valid_ifname(name: object) -> bool:
    """The kernel's dev_valid_name(), and the specification's rules: printable, neither "." nor ".."."""
    return (
        isinstance(name, str)
        and 0 < len(name.encode()) <= _LONGEST_IFNAME
        and name not in (".", "..")
        and not any(c in "/:" or c.isspace() or not c.isprintable() for c in name)
    )


def _parse_cni_args(text: str) -> dict[str, str]:
    extra: dict[str, str] = {}
    for pair in filter(None, text.split(";")):
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise environment_error("CNI_ARGS", text, "KEY=VALUE pairs separated by ';'")
        extra[key] = value
    return extra
