"""Takes secrets out of what leaves the machine: by their shape, by the name before them, and by known values."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from nodelib.json_values import Json

OUT = "(left out)"
_LEAST = 6  # characters; shorter values of Secrets, such as "true", are also ordinary words
# Text comes from pods too: no pattern may take more than linear time.
_SHAPES = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),  # a JSON web token
    re.compile(r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]{40,}"),  # PEM in base64, as in kubeconfigs
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),  # a bootstrap token
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{6,}"),
    re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"),  # user and password in a URL
)
_NAMED = re.compile(
    r"""(?ix)
    ( (?: password | passwd | secret | token | credentials? | api[_-]?key | key-data ) ["']? \s* [=:] \s* )
    (?! ["']? (?: true | false | null | \d+ ) \b )
    ( "[^"\n]{3,}" | '[^'\n]{3,}' | [^\s,;"'{}\[\]]{3,} )
    """
)
_SECRET_NAME = re.compile(r"(?i)passw|secret|token|credential|api_?key|private_?key")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Redactor:
    """Knows the values of the cluster's Secrets, and leaves them out wherever they turn up."""

    def __init__(self, secrets: Iterable[Json] = ()) -> None:
        found = {form for secret in secrets for value in _values(secret) for form in _forms(value)}
        self._values = sorted(found, key=len, reverse=True)  # a value may be part of a longer one

    def text(self, text: str) -> str:
        """Text without secrets, line by line as it was."""
        return _NAMED.sub(rf"\1{OUT}", self._shapes(text))

    def object(self, found: Json) -> Json:
        """An API object without secrets: no data of Secrets, no values of variables that sound like passwords."""
        kind = str(found.get("kind", ""))
        metadata = {key: value for key, value in (found.get("metadata") or {}).items() if key != "managedFields"}
        notes = metadata.get("annotations")
        if isinstance(notes, dict):
            hidden = set(notes) if kind == "Secret" else {_APPLIED}
            metadata["annotations"] = {key: OUT if key in hidden else value for key, value in notes.items()}
        clean = {**found, "metadata": metadata}
        for key in ("data", "stringData", "binaryData"):
            if isinstance(found.get(key), dict) and (kind == "Secret" or not _is_system(found)):
                clean[key] = {name: f"({len(str(value))} characters left out)" for name, value in found[key].items()}
        walked: Json = self._walked(clean)
        return walked

    def _walked(self, value: Any) -> Any:
        if isinstance(value, dict):
            value = {self._shapes(str(key)): self._walked(inner) for key, inner in value.items()}
            if "value" in value and _SECRET_NAME.search(str(value.get("name", ""))):
                value["value"] = OUT
            return value
        if isinstance(value, list):
            return [self._walked(inner) for inner in value]
        return self.text(value) if isinstance(value, str) else value

    def _shapes(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, OUT)
        for shape in _SHAPES:
            text = shape.sub(OUT, text)
        return text


def _is_system(found: Json) -> bool:
    return (found.get("metadata") or {}).get("namespace") == "kube-system"


def _values(secret: Json) -> Iterable[str]:
    for encoded in (secret.get("data") or {}).values():
        try:
            yield base64.b64decode(str(encoded), validate=True).decode(errors="replace")
        except binascii.Error:
            yield str(encoded)


def _forms(value: str) -> Sequence[str]:
    """The value as it may turn up: as it is, inside JSON, in base64, and the long lines of a PEM file."""
    if len(value.strip()) < _LEAST:
        return ()
    lines = [line for line in value.splitlines() if len(line) >= 40]
    encoded = base64.b64encode(value.encode()).decode()
    return (value, value.strip(), json.dumps(value)[1:-1], encoded, *lines)
