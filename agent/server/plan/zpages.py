"""Contents of /statusz and /flagz, as text or JSON (k8s.io/apiserver/pkg/server/{statusz,flagz}, beta since 1.36).

JSON is config.k8s.io v1alpha1 or v1beta1, requested by parameters of the Accept header; the default is plain text.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339

_GROUP = "config.k8s.io"
_VERSIONS = ("v1alpha1", "v1beta1")
_HEADER = (
    "\n{} {}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only.\n"
)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of the answer: plain text, or an object of this API version."""

    version: str = ""

    @property
    def is_text(self) -> bool:
        return not self.version


def form_of(accept: str, kind: str) -> Form | None:
    """The first form in an Accept header that is supported, None when there is none (406)."""
    if not accept.strip():
        return Form()
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        given = dict(part.partition("=")[::2] for part in parameters)
        wanted = {key: given[key] for key in ("as", "g", "v") if key in given}
        if media in ("text/plain", "text/*", "*/*") and not wanted:
            return Form()
        structured = media in ("application/json", "application/*", "*/*")
        if structured and given.get("as") == kind and given.get("g") == _GROUP and given.get("v") in _VERSIONS:
            return Form(given["v"])
    return None


def statusz(form: Form, *, started: float, now: float, version: str, language: str, paths: Iterable[str]) -> str | Json:
    """The page or object. Times in wall seconds; `language` stands in the place of upstream's Go version."""
    listed = sorted(paths)
    if not form.is_text:
        return {
            **_object("Statusz", form),
            "startTime": format_rfc3339(int(started)),
            "uptimeSeconds": max(0, int(now - started)),
            "goVersion": language,
            "binaryVersion": version,
            "emulationVersion": ".".join(version.removeprefix("v").split(".")[:2]),
            "paths": listed,
        }
    lines = (
        ("Started", format_rfc3339(int(started))),
        ("Up", _uptime(now - started)),
        ("Language", language),
        ("Binary version", version),
        ("Paths", " ".join(listed)),
    )
    text = "".join(f"{name}: {html.escape(value)}\n" for name, value in lines)
    return f"{_HEADER.format('kubelet', 'statusz')}\n{text}"


def flagz(form: Form, flags: Mapping[str, str]) -> str | Json:
    """The page or object with the flags of the command line and their values."""
    if not form.is_text:
        return {**_object("Flagz", form), "flags": dict(sorted(flags.items()))}
    listed = "".join(f"{name}={value}\n" for name, value in sorted(flags.items()))
    return f"{_HEADER.format('kubelet', 'flagz')}\n{listed}"


def _object(kind: str, form: Form) -> Json:
    return {"kind": kind, "apiVersion": f"{_GROUP}/{form.version}", "metadata": {"name": "kubelet"}}


def _uptime(seconds: float) -> str:
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} hr {minutes:02d} min {rest:02d} sec"
