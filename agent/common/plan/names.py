"""Names that become parts of paths on the node. The API server checks those of its pods; manifests are checked here."""

from __future__ import annotations

import re

from agent.common.model.pods import UID, Pod
from nodelib.errors import Invalid

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def check_names(pod: Pod) -> None:
    """Raises Invalid for a name that is not a DNS label (or subdomain) and could lead out of the pod's directory."""
    checks = [
        ("metadata.name", pod.meta.get("name"), _SUBDOMAIN),
        ("metadata.namespace", pod.namespace, _LABEL),
        ("metadata.uid", pod.meta.get("uid"), UID),
    ]
    checks += [("volume name", volume.get("name"), _LABEL) for volume in pod.spec.get("volumes") or []]
    checks += [("container name", container.get("name"), _LABEL) for _, container in pod.containers()]
    for what, value, pattern in checks:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise Invalid(
                f"{what} {value!r} is not a valid name",
                obj=f"pod {pod.full_name[:200]!r}",
                action="Use lower case letters, digits and hyphens, beginning and ending with a letter or digit.",
            )
