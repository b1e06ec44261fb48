"""Takes secrets out of what leaves the machine: by their shape, by the name before them, and by known values."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from cli.export import named
from nodelib.json_values import Json, decode, object_or_empty

OUT = "(left out)"
_LEAST = 6  # characters; shorter values of Secrets, such as "true", are also ordinary words
_LEAST_NAMED = 4  # of a value whose key says that it is a password
_LONG = 64  # characters of a value that are looked up
_CANDIDATES = 16
_LEAST_LINE = 16  # of a line of a longer value
# Text comes from pods too: no pattern may take more than linear time.
_SHAPES = (
    re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),  # a JSON web token
    re.compile(r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]{40,}"),  # PEM in base64, as in kubeconfigs
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),  # a bootstrap token
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{6,}"),
    re.compile(r"(?i)(?<=authorization: basic )[\w+/=-]{4,}"),
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sha256~)[\w-]{16,}"),  # tokens of well-known services
    # User and password in a URL; a password may hold @ and /, and an image of a registry with a port has no user.
    re.compile(r"(?<=://)(?![\w.-]{1,200}:\d{1,5}/)[^\s/@:\"'<>]{0,200}:[^\s\"'<>]{1,500}(?=@)"),
)
_END_OF_KEY = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]{1,100}")
_MOST_LINES = 200  # of a key
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SECRETS_OWN = ("kind", "apiVersion", "metadata", "type", "immutable", "data", "stringData")


class Redactor:
    """Knows values, those of the cluster's Secrets and others, and leaves them out wherever they turn up."""

    def __init__(self, secrets: Iterable[Json] = (), others: Iterable[str] = ()) -> None:
        found = {form for secret in secrets for value in _values(secret) for form in _forms(value)}
        found |= {form for value in others for form in _forms(value)}
        # By their first characters, so that no text of a pod costs a look at each of them.
        self._whole: dict[str, set[str]] = {}
        self._long: dict[str, list[str]] = {}
        for value in sorted(found, key=len, reverse=True):
            if len(value) <= _LONG:
                self._whole.setdefault(value[:_LEAST_NAMED], set()).add(value)
            else:
                self._long.setdefault(value[:_LONG], []).append(value)
                self._whole.setdefault(value[:_LEAST_NAMED], set()).add(value[:_LONG])
        self._sizes = {
            start: sorted({len(value) for value in values}, reverse=True) for start, values in self._whole.items()
        }

    def text(self, text: str) -> str:
        """Text without secrets, line by line as it was."""
        return named.without(self._shapes(text), OUT)

    def object(self, found: Json) -> Json:
        """An API object without secrets: no data of Secrets, no values of variables that sound like passwords."""
        kind, secret = str(found.get("kind", "")), found.get("kind") == "Secret"
        metadata = {
            key: value for key, value in object_or_empty(found.get("metadata")).items() if key != "managedFields"
        }
        notes = metadata.get("annotations")
        if isinstance(notes, dict):
            hidden = set(notes) if secret else {_APPLIED}
            metadata["annotations"] = {key: OUT if key in hidden else value for key, value in notes.items()}
        clean = {key: value for key, value in found.items() if not secret or key in _SECRETS_OWN}
        clean["metadata"] = metadata
        for key in ("data", "stringData", "binaryData"):
            if key in found and (secret or (kind == "ConfigMap" and not _is_system(found))):
                held = object_or_empty(found[key])
                clean[key] = {name: f"({len(str(value))} characters left out)" for name, value in held.items()}
        walked: Json = self._walked(clean)
        return walked

    def _walked(self, value: Any) -> Any:
        if isinstance(value, dict):
            hidden = {key for key in value if isinstance(value[key], str) and named.is_secret(str(key))}
            if "value" in value and named.is_variable(str(value.get("name", ""))):
                hidden.add("value")
            return {self._shapes(str(key)): OUT if key in hidden else self._walked(one) for key, one in value.items()}
        if isinstance(value, list):
            # The value of an option of a command line is often a word of its own.
            hidden = {at + 1 for at, one in enumerate(value) if isinstance(one, str) and named.is_option(one)}
            return [OUT if at in hidden and isinstance(one, str) else self._walked(one) for at, one in enumerate(value)]
        return self.text(value) if isinstance(value, str) else value

    def _shapes(self, text: str) -> str:
        text = self._known(text)
        for shape in _SHAPES:
            text = shape.sub(OUT, text)
        return _without_ends_of_keys(text) if _END_OF_KEY.search(text) else text

    def _known(self, text: str) -> str:
        """Without the known values."""
        parts, done, at = [], 0, 0
        last = len(text) - _LEAST_NAMED if self._whole else -1
        while at <= last:
            sizes = self._sizes.get(text[at : at + _LEAST_NAMED])
            end = self._end(text, at, sizes) if sizes else 0
            if end:
                parts += [text[done:at], OUT]
                done = at = end
            else:
                at += 1
        return "".join((*parts, text[done:])) if parts else text

    def _end(self, text: str, at: int, sizes: Sequence[int]) -> int:
        """Where the known value that begins there ends, 0 when there is none. A value may be part of a longer one."""
        values = self._whole[text[at : at + _LEAST_NAMED]]
        found = next((piece for size in sizes if (piece := text[at : at + size]) in values), "")
        if len(found) < _LONG or found not in self._long:
            return at + len(found) if found else 0
        known = self._long[found]
        for value in known[:_CANDIDATES]:
            if text.startswith(value, at):
                return at + len(value)
        end = text.find("\n", at + _LONG)  # a part of one, or one of very many that begin alike
        return end if end >= 0 else len(text)


def _without_ends_of_keys(text: str) -> str:
    """Without the rest of a key whose beginning was cut off with the beginning of a log."""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if _END_OF_KEY.search(line):
            end = len(lines)
            while lines and end - len(lines) < _MOST_LINES and _BASE64.fullmatch(lines[-1]):
                lines.pop()
            line = f"{OUT}\n"
        lines.append(line)
    return "".join(lines)


def _is_system(found: Json) -> bool:
    return object_or_empty(found.get("metadata")).get("namespace") == "kube-system"


def _values(secret: Json) -> Iterator[str]:
    for key, encoded in object_or_empty(secret.get("data")).items():
        try:
            value = base64.b64decode(str(encoded), validate=True).decode(errors="replace")
        except (binascii.Error, ValueError):
            value = str(encoded)
        least = _LEAST_NAMED if named.is_variable(str(key)) else _LEAST
        yield from (one for one in (value, *_inner(value)) if len(one.strip()) >= least)


def _inner(value: str) -> Iterator[str]:
    """The texts in a value that is JSON, as logins of registries are; `auth` is user:password in base64."""
    if not value.lstrip().startswith("{"):
        return
    try:
        pending: list[Any] = [decode(value)]
    except ValueError:
        return
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending += one.values()
        elif isinstance(one, list):
            pending += one
        elif isinstance(one, str):
            yield one
            try:
                yield base64.b64decode(one, validate=True).decode().partition(":")[2]
            except ValueError:
                continue


def _forms(value: str) -> Iterator[str]:
    """The value as it may turn up: as it is, inside JSON, in base64, in a URL, and the longer lines of a file."""
    if len(value.strip()) < _LEAST_NAMED:
        return
    yield from (value, value.strip(), json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield base64.b64encode(value.encode(errors="replace")).decode()
    yield quote(value, safe="", errors="replace")
    yield from (line for line in value.splitlines() if len(line) >= _LEAST_LINE)
