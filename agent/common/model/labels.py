"""The labels and annotations of sandboxes and containers in the runtime.

They are the agent's only memory across a restart. Names and values are upstream's (pkg/kubelet/kuberuntime/labels.go),
so either kubelet can take over what the other has started.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from agent.common.model.pods import ObservedPod, Pod
from nodelib.fnv import fnv1a
from nodelib.json_values import Json
from nodelib.text_numbers import is_number

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"

HASH = "io.kubernetes.container.hash"
RESTART_COUNT = "io.kubernetes.container.restartCount"
TERMINATION_PATH = "io.kubernetes.container.terminationMessagePath"
TERMINATION_POLICY = "io.kubernetes.container.terminationMessagePolicy"
PRE_STOP = "io.kubernetes.container.preStopHandler"
PORTS = "io.kubernetes.container.ports"
DELETION_GRACE = "io.kubernetes.pod.deletionGracePeriod"
TERMINATION_GRACE = "io.kubernetes.pod.terminationGracePeriod"

# The runtime lists all pods in one message of at most 16 MiB. Upstream hands over everything: seventy pods with large
# annotations, and a node sees no pod any more.
_MOST_OF_POD = 24 * 1024  # bytes of labels, and of annotations
_MOST_OF_CONTAINER = 2 * 1024  # characters of one annotation; a longer hook runs only while the API has the pod

LONGEST_IMAGE = 1024  # characters; a name has 255, a tag 128, a digest 136 (github.com/distribution/reference)
_HASHES = "container hashes"

CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_HASH = "kubernetes.io/config.hash"
CONFIG_MIRROR = "kubernetes.io/config.mirror"
CONFIG_SEEN = "kubernetes.io/config.seen"


def container_hash(container: Json) -> str:
    """Hex FNV-1a of what makes a running container a different one: its name and image, as upstream picks them.

    Upstream hashes Go's dump of the JSON bytes, "([]uint8)[123 34 …]" (pkg/util/hash): the very same text here,
    so that containers which upstream's kubelet started do not count as changed. Of an image that no runtime has, the
    beginning: it is worked out byte by byte, and the API server takes a megabyte.
    """
    text = json.dumps({"image": bounded_image(container), "name": container["name"]}, separators=(",", ":"))
    dump = f"([]uint8)[{' '.join(str(byte) for byte in text.encode())}]"
    return format(fnv1a(dump.encode()), "x")


def bounded_image(container: Json) -> str:
    """Its image, or the beginning of what is too long for one: the API server takes a megabyte."""
    return str(container.get("image", ""))[:LONGEST_IMAGE]


def hash_in(pod: Pod, container: Json) -> str:
    """container_hash(), once for the pod and its later versions: a plan asks for it of each running container."""
    known, key = pod.once(_HASHES, dict[tuple[str, str], str]), _hashed(container)
    if key not in known:
        known[key] = container_hash(container)
    return known[key]


def keep_hashes(before: Pod, now: Pod) -> None:
    """`now` is a later version of the pod."""
    known = before.once(_HASHES, dict[tuple[str, str], str])
    keys = [_hashed(container) for _, container in now.containers()]
    now.once(_HASHES, lambda: {key: known[key] for key in keys if key in known})


def _hashed(container: Json) -> tuple[str, str]:
    return container["name"], container.get("image", "")


def sandbox_labels(pod: Pod) -> dict[str, str]:
    """The pod's own labels and its identity."""
    return {**_few(pod.meta.get("labels") or {}), POD_NAME: pod.name, POD_NAMESPACE: pod.namespace, POD_UID: pod.uid}


def sandbox_annotations(pod: Pod) -> dict[str, str]:
    """The pod's own annotations, for the runtime and the network, and where it was read, whatever they say of it."""
    return {**_few(pod.meta.get("annotations") or {}), CONFIG_SOURCE: pod.source}


def container_labels(pod: Pod, container: Json) -> dict[str, str]:
    return {
        POD_NAME: pod.name,
        POD_NAMESPACE: pod.namespace,
        POD_UID: pod.uid,
        CONTAINER_NAME: container["name"],
    }


def container_annotations(pod: Pod, container: Json, attempt: int) -> dict[str, str]:
    """What is needed to stop or restart this container when nothing else is known of its pod."""
    found = {
        HASH: container_hash(container),
        RESTART_COUNT: str(attempt),
        TERMINATION_PATH: container.get("terminationMessagePath", ""),
        TERMINATION_POLICY: container.get("terminationMessagePolicy", ""),
    }
    if pod.meta.get("deletionGracePeriodSeconds") is not None:
        found[DELETION_GRACE] = str(pod.meta["deletionGracePeriodSeconds"])
    if pod.spec.get("terminationGracePeriodSeconds") is not None:
        found[TERMINATION_GRACE] = str(pod.spec["terminationGracePeriodSeconds"])
    pre_stop = (container.get("lifecycle") or {}).get("preStop")
    if pre_stop:
        found[PRE_STOP] = json.dumps(pre_stop, separators=(",", ":"))
    if container.get("ports"):
        found[PORTS] = json.dumps(container["ports"], separators=(",", ":"))
    return {name: text for name, text in found.items() if len(text) <= _MOST_OF_CONTAINER}


def _few(given: Mapping[str, str]) -> dict[str, str]:
    """As much of what users wrote as a list of all pods has room for, the short ones first."""
    kept, room = dict[str, str](), _MOST_OF_POD
    for name in sorted(given, key=lambda name: len(given[name])):
        room -= len(name.encode()) + len(str(given[name]).encode(errors="replace"))
        if room < 0:
            break
        kept[name] = given[name]
    return kept


def restart_count(annotations: Mapping[str, str], attempt: int) -> int:
    """How often the container was restarted before this attempt; the CRI attempt where the annotation is missing."""
    text = annotations.get(RESTART_COUNT, "")
    return int(text) if is_number(text) else attempt


def source_of(seen: ObservedPod) -> str:
    """Where this pod was read, as the annotations of its sandboxes say: "api", "file" or "http"."""
    return next((one.annotations[CONFIG_SOURCE] for one in seen.sandboxes if CONFIG_SOURCE in one.annotations), "api")
