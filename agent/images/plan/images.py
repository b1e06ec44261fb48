"""Image references, pull policies, and the waiting states of failed pulls (pkg/kubelet/images)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from agent.common.model.labels import LONGEST_IMAGE
from agent.common.model.pods import ImageFacts, Pod
from agent.common.model.states import Waiting
from nodelib.errors import Invalid
from nodelib.json_values import Json

# The grammar of github.com/distribution/reference.
_HOST = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_HOST}(?:\.{_HOST})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_DOMAIN}/)?{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[\w][\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_KINDS = {
    "RegistryUnavailable": "the registry is unavailable",
    "SignatureValidationFailed": "the signature validation failed",
}
_TOO_LARGE = "larger than max"  # gRPC's words for a message, of either side
_LONGEST_USER = 1024  # characters, as no system has them
_IMAGE_ID = re.compile(r"(?:sha256:)?[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """An image that a pod needs: `key` in Facts.images; `container` that events name ("": the pod itself)."""

    key: str
    image: str
    policy: str
    container: str = ""


class PullDecision(Enum):
    """What is done about an image that a container wants."""

    USE = "use the local one"
    PULL = "pull"
    REFUSE = "neither: the policy is Never"


def asks_for_local(policy: str) -> bool:
    """Whether a local image can do: only then it matters whether this pod may use it (KEP-2535)."""
    return policy != "Always"


def pull_decision(policy: str, *, present: bool, allowed: bool) -> PullDecision:
    """As EnsureImageExists of pkg/kubelet/images has it.

    `present`: the image is on the node; `allowed`: this pod may use it as it is.
    """
    if present and allowed and asks_for_local(policy):
        return PullDecision.USE
    return PullDecision.REFUSE if policy == "Never" else PullDecision.PULL


def wanted(container: Json, volume: Json | None = None) -> Wanted:
    """The container's own image, or that of a volume."""
    if volume is None:
        name = str(container["name"])
        return Wanted(name, str(container.get("image", "")), pull_policy(container), name)
    source = volume["image"]
    image = str(source.get("reference") or "")
    policy = pull_policy({"image": image, "imagePullPolicy": source.get("pullPolicy")})
    return Wanted(volume_key(volume["name"]), image, policy)


def volume_key(name: str) -> str:
    """The key of an image volume. Names of containers never contain a slash."""
    return f"volume/{name}"


def image_volumes(pod: Pod, container: Json) -> list[Json]:
    """The image volumes that the container mounts."""
    mounted = {mount.get("name") for mount in container.get("volumeMounts") or []}
    return [one for one in pod.spec.get("volumes") or [] if one.get("image") and one["name"] in mounted]


def with_default_tag(image: str) -> str:
    """The reference with ":latest" where it has neither tag nor digest. Raises Invalid."""
    if _IMAGE_ID.fullmatch(image):
        return image
    found = _parsed(image)
    if found is None or len(found["name"]) > 255:
        raise Invalid(
            f"couldn't parse image name {image[:LONGEST_IMAGE]!r}: invalid reference format",
            action="Write it as [registry/]name[:tag][@digest], in lower case.",
        )
    return image if found["tag"] or found["digest"] else f"{image}:latest"


def pull_policy(container: Json) -> str:
    """imagePullPolicy, with the API's default: Always for :latest or no tag."""
    policy = container.get("imagePullPolicy")
    if policy:
        return str(policy)
    found = _parsed(str(container.get("image", "")))
    latest = found is not None and not found["digest"] and found["tag"] in (None, "latest")
    return "Always" if latest else "IfNotPresent"


def _parsed(image: str) -> re.Match[str] | None:
    """It is asked at each plan of a pod, and the API server takes an image of a megabyte."""
    return _REFERENCE.fullmatch(image) if len(image) <= LONGEST_IMAGE else None


def unusable(image: ImageFacts) -> str:
    """Why no pod may have this image, "" for any other."""
    longest = len(image.username)
    return f"its configuration names a user of {longest} characters" if longest > _LONGEST_USER else ""


def is_too_large(message: str) -> bool:
    """Whether the runtime's answer did not come because of its size."""
    return _TOO_LARGE in message


def pull_failure(image: str, message: str) -> Waiting:
    """The waiting state after a failed pull. Runtimes prefix the message with CRI's names of failures."""
    for reason, text in _KINDS.items():
        if message.startswith(reason):
            return Waiting(reason, f"image pull failed for {image} because {text}{message.removeprefix(reason)}")
    return Waiting("ErrImagePull", message)


def pull_backed_off(image: str, last: Waiting) -> Waiting:
    """The waiting state until the next attempt."""
    return Waiting("ImagePullBackOff", f'Back-off pulling image "{image}": {last.reason}: {last.message}')
