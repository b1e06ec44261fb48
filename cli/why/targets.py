"""What `why` is asked about: "web-0", "shop/web-0", "deploy/web". Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cli.why.model import KINDS
from nodelib.errors import Invalid

_WORDS = {word: kind for kind, (more, _) in KINDS.items() for word in (kind, *more.split())}


@dataclass(frozen=True, slots=True)
class Target:
    """`kind` as in KINDS. A bare name means a pod, or the pods whose names begin with it."""

    kind: str
    namespace: str
    name: str


def target(text: str, namespace: str) -> Target:
    """Read NAME, KIND/NAME, "KIND NAME", NAMESPACE/NAME or NAMESPACE/KIND/NAME. Raises Invalid for anything else."""
    before, blank, after = text.partition(" ")
    if blank and (before.lower() not in _WORDS or "/" in after):
        raise _unreadable(text)
    parts = [before, after] if blank else text.split("/")
    if not all(parts) or len(parts) > 3:
        raise _unreadable(text)
    *above, name = parts
    kind = _WORDS.get(above[-1].lower(), "") if above else "pod"
    if len(above) == 2:
        if not kind:
            raise _unreadable(text)
        return Target(kind, above[0], name)
    # A kind comes before a namespace that is called so: `kubectl` would read it in the same way.
    return Target(kind, namespace, name) if kind else Target("pod", above[0], name)


def meant(wanted: Target, others: Iterable[Target]) -> str:
    """What to ask instead when there is no such object: `others` are all that there are; "" for nothing alike.

    A command stands in the answer as `nodewright why …`.
    """
    if wanted.kind == "pod" and wanted.name.lower() in _WORDS:
        return f"After a kind comes a name: `nodewright why {_WORDS[wanted.name.lower()]}/NAME`."
    others = tuple(others)
    alike = [one for one in others if one.name == wanted.name and (wanted.kind in ("pod", one.kind))]
    alike.sort(key=lambda one: (one.namespace != wanted.namespace, one.kind))
    if not alike and wanted.namespace not in {"default", *(one.namespace for one in others)}:
        return f"Nothing is in namespace {wanted.namespace}; if that is a kind, `why` knows only {', '.join(KINDS)}."
    if not alike:
        return ""
    best = alike[0]
    where = f" in namespace {best.namespace}" if best.namespace else ""
    space = f"{best.namespace}/" if best.namespace not in ("", "default") else ""
    return f"There is {best.kind} {best.name}{where}: `nodewright why {space}{best.kind}/{best.name}`."


def _unreadable(text: str) -> Invalid:
    kinds = ", ".join(KINDS)
    return Invalid(
        "cannot be read as the name of an object",
        obj=text,
        step="explain",
        action=f"Write NAME, KIND/NAME, NAMESPACE/NAME or NAMESPACE/KIND/NAME; KIND is one of {kinds}.",
    )
