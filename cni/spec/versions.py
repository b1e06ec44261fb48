"""The versions of the specification that this plugin supports. Pure."""

from __future__ import annotations

from nodelib.json_values import Json

CURRENT = "1.1.0"
SUPPORTED = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
SINCE = {
    "ADD": "0.1.0",
    "DEL": "0.1.0",
    "VERSION": "0.1.0",
    "CHECK": "0.4.0",
    "GC": "1.1.0",
    "STATUS": "1.1.0",
}  # the version that introduced each command


def version_reply(asked: str) -> Json:
    """The answer to VERSION."""
    return {"cniVersion": asked or CURRENT, "supportedVersions": list(SUPPORTED)}


def number(version: str) -> tuple[int, ...]:
    """A version in a form that can be compared."""
    return tuple(int(part) for part in version.split("."))
