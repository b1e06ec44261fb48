"""Whether a pod may use a local image without asking its registry again (KEP-2535), and the records of that.

Follows pkg/kubelet/images/pullmanager. The records have upstream's format, so that either agent can use the other's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from agent.images.model.pulls import Access, AccountSource, PullCredential, PulledRecord, SecretSource
from nodelib.errors import Invalid
from nodelib.json_values import Json, compact
from nodelib.json_values import decode as decode_json
from nodelib.kube.times import format_rfc3339, parse_rfc3339

NEVER, ALWAYS = "NeverVerify", "AlwaysVerify"
PRELOADED, ALLOWED = "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages"
_API = "kubelet.config.k8s.io/v1beta1"
_HASHED = (("username", "username"), ("password", "password"), ("identity_token", "identitytoken"))
_MOST_REPOSITORIES = 1000  # in one record; a registry may give one image as many names as it likes
_MOST_SECRETS = 100  # of one repository in one record; upstream's writeRecordWhileMatchingLimit


@dataclass(frozen=True, slots=True)
class VerifyPolicy:
    """imagePullCredentialsVerificationPolicy, and preloadedImagesVerificationAllowlist for ALLOWED."""

    name: str = PRELOADED
    allowlist: tuple[str, ...] = ()

    def asks(self, image: str, *, pulled_here: bool) -> bool:
        """Whether credentials have to be verified. `pulled_here`: the agent has pulled the image itself."""
        if self.name in (NEVER, ALWAYS):
            return self.name == ALWAYS
        if self.name == PRELOADED:
            return pulled_here
        name = repository(image)
        return not any(name.startswith(one[:-1]) if one.endswith("/*") else name == one for one in self.allowlist)


def repository(image: str) -> str:
    """The image's name without tag and digest."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def is_known(record: PulledRecord | None, image: str, credentials: Iterable[PullCredential]) -> bool:
    """Whether the image was pulled from this repository with one of these credentials, or is for everybody."""
    access = record.access.get(repository(image)) if record is not None else None
    if access is None:
        return False
    if access.everybody:
        return True
    hashes = {one.hash for one in access.secrets if one.hash}
    places = {(one.uid, one.namespace, one.name) for one in access.secrets}
    # A secret is still trusted after its credential was renewed.
    return any(
        one.source in access.accounts
        if isinstance(one.source, AccountSource)
        else one.source.hash in hashes or (one.source.uid, one.source.namespace, one.source.name) in places
        for one in credentials
        if one.source is not None
    )


def granted(
    record: PulledRecord | None, image_id: str, image: str, by: Collection[PullCredential] | None, now: float
) -> PulledRecord:
    """The record after a pull with the credentials `by`; (): without any, so for everybody; None: not known."""
    found = record or PulledRecord(image_id, now)
    if by is None:
        return found
    name = repository(image)
    before = found.access.get(name, Access())
    sources = [one.source for one in by if one.source is not None]
    if before.everybody or len(sources) < len(by) or not by:
        after = Access(everybody=True)
    else:
        secrets = [one for one in sources if isinstance(one, SecretSource)]
        kept = {(one.uid, one.namespace, one.name): one for one in (*before.secrets, *secrets)}
        accounts = {*before.accounts, *(one for one in sources if isinstance(one, AccountSource))}
        after = Access(
            secrets=tuple(sorted(kept.values()))[:_MOST_SECRETS], accounts=tuple(sorted(accounts))[:_MOST_SECRETS]
        )
    full = name not in found.access and len(found.access) >= _MOST_REPOSITORIES
    # Those that are there stay: their pods would need the registry again. Whose repository finds no room pulls anew.
    return found if after == before or full else replace(found, updated=now, access={**found.access, name: after})


def hashed(auth: Json) -> str:
    """The hash of a credential, as upstream computes it."""
    listed = {name: auth[key] for key, name in (*_HASHED, ("registry_token", "registrytoken")) if auth.get(key)}
    return hashlib.sha256(compact(listed).encode()).hexdigest()


def file_name(subject: str) -> str:
    """The file of the record of an image, or of the intent to pull it."""
    return f"sha256-{hashlib.sha256(subject.encode()).hexdigest()}"


def encode(record: PulledRecord) -> str:
    mapping: Json = {}
    for name, access in sorted(record.access.items()):
        secrets = [
            {"uid": one.uid, "namespace": one.namespace, "name": one.name, "credentialHash": one.hash}
            for one in access.secrets
        ]
        accounts = [{"uid": one.uid, "namespace": one.namespace, "name": one.name} for one in access.accounts]
        listed = {"kubernetesSecrets": secrets, "kubernetesServiceAccounts": accounts}
        mapping[name] = (
            {"nodePodsAccessible": True}
            if access.everybody
            else {kind: found for kind, found in listed.items() if found or kind == "kubernetesSecrets"}
        )
    body: Json = {"kind": "ImagePulledRecord", "apiVersion": _API, "lastUpdatedTime": format_rfc3339(record.updated)}
    return json.dumps({**body, "imageRef": record.image_id, "credentialMapping": mapping})


def decode(text: str) -> PulledRecord:
    """Raises Invalid."""
    try:
        body = decode_json(text)
        access = {str(name): _access(one) for name, one in (body.get("credentialMapping") or {}).items()}
        return PulledRecord(str(body["imageRef"]), parse_rfc3339(body["lastUpdatedTime"]), access)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"this is not a record of a pull: {error!r}", step="read pull record") from error


def encode_intent(image: str) -> str:
    return json.dumps({"kind": "ImagePullIntent", "apiVersion": _API, "image": image})


def decode_intent(text: str) -> str:
    """Raises Invalid."""
    try:
        return str(decode_json(text)["image"])
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid(f"this is not an intent to pull: {error!r}", step="read pull record") from error


def _access(one: Json) -> Access:
    secrets = tuple(
        SecretSource(
            str(entry["namespace"]), str(entry["name"]), str(entry["uid"]), str(entry.get("credentialHash", ""))
        )
        for entry in one.get("kubernetesSecrets") or []
    )
    accounts = tuple(
        AccountSource(str(entry["namespace"]), str(entry["name"]), str(entry["uid"]))
        for entry in one.get("kubernetesServiceAccounts") or []
    )
    return Access(bool(one.get("nodePodsAccessible")), secrets, accounts)
