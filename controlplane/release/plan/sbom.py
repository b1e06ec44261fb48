"""The list of all parts of a release, in CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/). Pure."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlencode

from controlplane.release.model import Component


def merged(components: Iterable[Component]) -> list[Component]:
    """Each component once, with all the files that hold it, in a stable order."""
    found: dict[str, Component] = {}
    inside: dict[str, set[str]] = {}
    for one in components:
        found.setdefault(package_url(one), one)
        inside.setdefault(package_url(one), set()).update(one.inside)
    return [
        Component(one.kind, one.name, one.version, tuple(sorted(inside[url])), one.digest, one.licence, one.qualifiers)
        for url, one in sorted(found.items())
    ]


def package_url(component: Component) -> str:
    """https://github.com/package-url/purl-spec"""
    kind = "deb/debian" if component.kind == "deb" else component.kind
    more = f"?{urlencode(sorted(component.qualifiers.items()))}" if component.qualifiers else ""
    return f"pkg:{kind}/{quote(component.name, safe='/')}@{quote(component.version, safe='.+-')}{more}"


def document(version: str, commit: str, stamp: str, components: Iterable[Component]) -> str:
    """The SBOM. `stamp`: the commit's time in RFC 3339; the serial number follows from the content."""
    listed = [_component(one) for one in merged(components)]
    digest = hashlib.sha256(json.dumps([version, commit, listed], sort_keys=True).encode()).digest()
    url = f"pkg:pypi/nodewright@{version}"
    subject = {"type": "application", "bom-ref": url, "name": "nodewright", "version": version, "purl": url}
    written = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}",
        "version": 1,
        "metadata": {
            "timestamp": stamp,
            "component": {**subject, "properties": [{"name": "nodewright:commit", "value": commit}]},
        },
        "components": listed,
        "dependencies": [{"ref": url, "dependsOn": [one["bom-ref"] for one in listed]}],
    }
    return json.dumps(written, indent=1, sort_keys=True) + "\n"


def _component(one: Component) -> dict[str, Any]:
    url = package_url(one)
    shown: dict[str, Any] = {"type": "library", "bom-ref": url, "name": one.name, "version": one.version, "purl": url}
    if one.digest:
        shown["hashes"] = [{"alg": "SHA-256", "content": one.digest}]
    if one.licence:
        shown["licenses"] = [{"expression": one.licence}]
    shown["properties"] = [{"name": "nodewright:in", "value": name} for name in one.inside]
    return shown
