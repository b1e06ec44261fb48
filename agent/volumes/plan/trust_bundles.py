"""Trust anchors from ClusterTrustBundles. Follows pkg/kubelet/clustertrustbundle."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence

from agent.volumes.model.sources import TrustBundleProjection
from agent.volumes.plan.pem_blocks import certificates
from nodelib.errors import Invalid
from nodelib.json_values import Json
from nodelib.json_values import decode as decode_json

_BODY = re.compile(r"[A-Za-z0-9+/=\s]+")
_LINE = 64


def anchors(
    wanted: Iterable[TrustBundleProjection], bundles: Sequence[Json]
) -> dict[TrustBundleProjection, bytes | None]:
    """For each projection the certificates as PEM, each once, in a stable order; None when no bundle matches.

    Whoever writes a pod chooses how many projections and how long their selectors are, and a bundle may have hundreds
    of certificates: each selector and each bundle is read once.
    """
    read: dict[int, frozenset[bytes]] = {}
    joined: dict[tuple[int, ...], bytes | None] = {(): None}
    found: dict[TrustBundleProjection, bytes | None] = {}
    for source in wanted:
        chosen = tuple(_matching(source, bundles))
        if chosen not in joined:
            read |= {number: _certificates(bundles[number]) for number in chosen if number not in read}
            joined[chosen] = b"".join(sorted(frozenset[bytes]().union(*(read[number] for number in chosen))))
        found[source] = joined[chosen]
    return found


def _certificates(bundle: Json) -> frozenset[bytes]:
    found: set[bytes] = set()
    for body in certificates((bundle.get("spec") or {}).get("trustBundle") or ""):
        if _BODY.fullmatch(body) and (text := "".join(body.split())):
            with contextlib.suppress(ValueError):  # the API server has skipped what cannot be decoded, too
                found.add(_pem(text))
    return frozenset(found)


def _matching(source: TrustBundleProjection, bundles: Sequence[Json]) -> Iterator[int]:
    """The numbers of the bundles that the projection is about."""
    if source.name:
        yield from (number for number, one in enumerate(bundles) if one["metadata"]["name"] == source.name)
        return
    if not source.signer or not source.selector:
        return
    selector = decode_json(source.selector)
    for number, bundle in enumerate(bundles):
        is_signers = (bundle.get("spec") or {}).get("signerName") == source.signer
        if is_signers and matches(selector, bundle["metadata"].get("labels") or {}):
            yield number


def matches(selector: Json, labels: Json) -> bool:
    """metav1.LabelSelector on labels; an empty selector matches everything. Raises Invalid on an unknown operator."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_expression(item, labels) for item in selector.get("matchExpressions") or [])


def _expression(item: Json, labels: Json) -> bool:
    key, values = item.get("key", ""), item.get("values") or []
    match item.get("operator"):
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise Invalid(f"{item.get('operator')!r} is not a valid label selector operator", step="labelSelector")


def _pem(body: str) -> bytes:
    raw = base64.b64encode(base64.b64decode(body)).decode()
    lines = "\n".join(raw[at : at + _LINE] for at in range(0, len(raw), _LINE))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n".encode()
