"""What may stand in the path of a request: the names of objects are those of others. Pure.

A pod names Secrets, ConfigMaps and claims in words that the API server does not check (pkg/apis/core/validation asks
for a name only). Behind "../../other/secrets/x" an HTTP client finds another namespace's Secret, which a node may read
if any of its pods uses it. client-go refuses such names (IsValidPathSegmentName of apimachinery's pkg/api/validation).
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"(?:/[A-Za-z0-9._~:@!$&'()*+,;=-]+)+/?", re.ASCII)  # RFC 3986, without escapes
_DOTS = (".", "..")
_IN_NAMESPACE = re.compile(r"/(?:api|apis/[^/]+)/[^/]+/namespaces/([^/]+)/.")


def namespace_of(path: str) -> str:
    """The namespace in which the path's object or collection is, "" for none."""
    found = _IN_NAMESPACE.match(path)
    return found[1] if found else ""


def is_name(text: str) -> bool:
    """Whether an object can have this name."""
    return "/" not in text and is_plain(f"/{text}")


def is_plain(path: str) -> bool:
    """Whether a server understands this path exactly as it is written."""
    return _PLAIN.fullmatch(path) is not None and not any(part in _DOTS for part in path.split("/"))
