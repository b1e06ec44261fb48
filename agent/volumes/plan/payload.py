"""The files of configMap, secret, downwardAPI and projected volumes.

Follows MakePayload and CollectData of pkg/volume/{configmap,secret,downwardapi,projected}; path
rules are those of pkg/volume/util/atomic_writer.go.
"""

from __future__ import annotations

import base64
import binascii
import json
import posixpath
from dataclasses import dataclass

from agent.common.model.pod_settings import NodeContext
from agent.common.model.pods import Pod
from agent.common.plan import downward
from agent.common.plan.secrets import decode_secret
from agent.volumes.model.sources import (
    CONFIG_MAP,
    SECRET,
    CertificateProjection,
    ObjectRef,
    TokenRequest,
    TrustBundleProjection,
    VolumeSources,
    create_command,
)
from agent.volumes.model.volumes import FileProjection
from nodelib.errors import Invalid, NodewrightError, Temporary
from nodelib.json_values import Json

Files = dict[str, FileProjection]
_DEFAULT_MODE = 0o644
_MOST_USER = 2**31 - 1
_DEFAULT_TOKEN_SECONDS = 3600
_MAX_NAME, _MAX_PATH = 255, 4096
_SHOWN = {CONFIG_MAP: "ConfigMap", SECRET: "Secret"}


@dataclass(frozen=True, slots=True)
class FileDefaults:
    """The mode and the owner of files whose item names none. `users`: owners are obeyed."""

    mode: int
    user: int | None = None
    users: bool = False

    def file(self, data: bytes, item: Json) -> FileProjection:
        mode = self.mode if item.get("mode") is None else item["mode"]
        return FileProjection(data, mode, self.owner(item))

    def owner(self, item: Json) -> int | None:
        """Raises Invalid for an owner that Linux has not."""
        user = self.user if item.get("user") is None else item["user"]
        if not self.users or user is None:
            return None
        if not isinstance(user, int) or not 0 <= user <= _MOST_USER:
            raise Invalid(
                f"user {user} of a volume's file is not between 0 and {_MOST_USER}",
                step="volume files",
                action="Change the volume's defaultUser, or the item's user.",
            )
        return int(user)


def checked_path(path: str) -> str:
    """The path, normalized. Raises Invalid if it leaves the volume or uses names of the atomic writer."""
    parts = path.split("/")
    problem = ""
    if not path or posixpath.normpath(path) == ".":
        problem = "must not be empty"
    elif path.startswith("/"):
        problem = "must be relative path"
    elif "\0" in path:
        problem = "must not contain a NUL byte"
    elif ".." in parts:
        problem = "must not contain '..'"
    elif parts[0].startswith("..") or posixpath.normpath(path).startswith(".."):
        problem = "must not start with '..'"
    elif len(path.encode()) > _MAX_PATH or any(len(part.encode()) > _MAX_NAME for part in parts):
        problem = f"must be at most {_MAX_PATH} bytes, each name at most {_MAX_NAME}"
    if problem:
        raise Invalid(f"invalid path {path!r}: {problem}", step="volume files", action="Change the item's path.")
    return posixpath.normpath(path)


def object_files(
    pod: Pod, volume: str, ref: ObjectRef, source: Json, found: Json | None, defaults: FileDefaults
) -> Files:
    """Files of a ConfigMap or Secret: all keys, or `items`. Raises Temporary when something needed is missing."""
    optional = bool(source.get("optional"))
    if found is None and not optional:
        raise _missing(pod, volume, ref, "")
    data = _data(ref, found or {})
    items = source.get("items") or []
    if not items:
        return {checked_path(key): defaults.file(content, {}) for key, content in data.items()}
    files: Files = {}
    for item in items:
        key = item.get("key", "")
        if key not in data:
            if optional:
                continue
            raise _missing(pod, volume, ref, key)
        files[checked_path(item.get("path", ""))] = defaults.file(data[key], item)
    return files


def downward_files(pod: Pod, source: Json, node: NodeContext, defaults: FileDefaults) -> Files:
    """Files of downwardAPI items."""
    files: Files = {}
    for item in source.get("items") or []:
        text = ""
        if ref := item.get("fieldRef"):
            text = downward.pod_field(pod, ref.get("fieldPath", ""))
        elif ref := item.get("resourceFieldRef"):
            text = downward.resource_field(pod, ref, node)
        files[checked_path(item.get("path", ""))] = defaults.file(text.encode(), item)
    return files


def projected_files(pod: Pod, volume: str, source: Json, sources: VolumeSources, node: NodeContext) -> Files:
    """Files of a projected volume; a later source replaces files of earlier ones."""
    defaults = file_defaults(source, node)
    files: Files = {}
    for index, part in enumerate(source.get("sources") or []):
        for key, kind in (("configMap", CONFIG_MAP), ("secret", SECRET)):
            if origin := part.get(key):
                ref = ObjectRef(kind, origin.get("name", ""))
                files |= object_files(pod, volume, ref, origin, sources.objects.get(ref), defaults)
        if origin := part.get("downwardAPI"):
            files |= downward_files(pod, origin, node, defaults)
        if origin := part.get("serviceAccountToken"):
            token = sources.tokens[token_request(origin)]
            files[checked_path(origin.get("path", ""))] = _credential(pod, origin, token.encode(), defaults)
        if origin := part.get("clusterTrustBundle"):
            anchors = _anchors(pod, volume, origin, sources)
            files[checked_path(origin.get("path", ""))] = _credential(pod, origin, anchors, defaults)
        if origin := part.get("podCertificate"):
            files |= _certificate_files(pod, volume, index, origin, sources, defaults)
    return files


def token_request(origin: Json) -> TokenRequest:
    return TokenRequest(origin.get("audience") or "", int(origin.get("expirationSeconds") or _DEFAULT_TOKEN_SECONDS))


def trust_bundle_projection(origin: Json) -> TrustBundleProjection:
    """A selector that is absent matches nothing, an empty one everything: "" and "{}" here."""
    if origin.get("name"):
        return TrustBundleProjection(name=origin["name"])
    selector = origin.get("labelSelector")
    text = "" if selector is None else json.dumps(selector, sort_keys=True)
    return TrustBundleProjection(signer=origin.get("signerName") or "", selector=text)


def certificate_projection(volume: str, index: int, origin: Json) -> CertificateProjection:
    """`index`: the source's place in the projected volume."""
    return CertificateProjection(
        volume,
        index,
        str(origin.get("signerName") or ""),
        str(origin.get("keyType") or ""),
        int(origin.get("maxExpirationSeconds") or 0),
        tuple(sorted((origin.get("userAnnotations") or {}).items())),
    )


def file_defaults(source: Json, node: NodeContext) -> FileDefaults:
    mode = source.get("defaultMode")
    return FileDefaults(
        _DEFAULT_MODE if mode is None else int(mode), source.get("defaultUser"), node.volumes.file_users
    )


def fs_user(pod: Pod) -> int | None:
    """The user that owns files of credentials: the one that all containers run as, None if they differ."""
    of_pod = (pod.spec.get("securityContext") or {}).get("runAsUser")
    users = {(c.get("securityContext") or {}).get("runAsUser", of_pod) for _, c in pod.containers()}
    return users.pop() if len(users) == 1 else None


def fs_group(pod: Pod) -> int | None:
    group = (pod.spec.get("securityContext") or {}).get("fsGroup")
    return None if group is None else int(group)


def _credential(pod: Pod, origin: Json, data: bytes, defaults: FileDefaults) -> FileProjection:
    # With an fsGroup the ownership pass widens 0600 to 0640; without either, the default mode lets everyone read.
    owner = defaults.owner(origin)
    if owner is None:
        owner = fs_user(pod)
    return FileProjection(data, 0o600 if owner is not None or fs_group(pod) is not None else defaults.mode, owner)


def _anchors(pod: Pod, volume: str, origin: Json, sources: VolumeSources) -> bytes:
    anchors = sources.bundles.get(trust_bundle_projection(origin))
    if anchors is not None:
        return anchors
    if origin.get("optional"):
        return b""
    wanted = origin.get("name") or f"signer {origin.get('signerName')!r} with its labelSelector"
    raise Temporary(
        f"no ClusterTrustBundle matches {wanted}",
        obj=f"pod {pod.full_name}",
        step=f"volume {volume}",
        action="Create it, or mark the source optional; the pod starts as soon as it exists.",
    )


def _certificate_files(
    pod: Pod, volume: str, index: int, origin: Json, sources: VolumeSources, defaults: FileDefaults
) -> Files:
    found = sources.certificates[certificate_projection(volume, index, origin)]
    if isinstance(found, NodewrightError):
        raise found
    shown = (
        ("credentialBundlePath", found.key + found.chain),
        ("keyPath", found.key),
        ("certificateChainPath", found.chain),
    )
    return {
        checked_path(origin[key]): _credential(pod, origin, data, defaults) for key, data in shown if origin.get(key)
    }


def _data(ref: ObjectRef, found: Json) -> dict[str, bytes]:
    if ref.kind == SECRET:
        return {key: decode_secret(value) for key, value in (found.get("data") or {}).items()}
    data = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    try:
        return data | {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
    except (binascii.Error, ValueError) as error:
        raise Invalid(f"binaryData of ConfigMap {ref.name} is not base64") from error


def _missing(pod: Pod, volume: str, ref: ObjectRef, key: str) -> Temporary:
    shown = f"{_SHOWN[ref.kind]} {pod.namespace}/{ref.name}"
    if key:
        message = f'volume "{volume}" references non-existent key {key!r} of {shown}'
        todo = "Add the key, or mark the reference optional"
    else:
        singular = ref.kind.removesuffix("s")
        message = f'MountVolume.SetUp failed for volume "{volume}" : {singular} "{ref.name}" not found'
        command = create_command(ref.kind, pod.namespace, ref.name)
        todo = f"Create {shown} ({command}), or mark the reference optional"
    return Temporary(
        message, obj=f"pod {pod.full_name}", action=f"{todo}; the pod starts as soon as it exists.", retry_after=60
    )
