"""What `why` is asked about: "web-0", "shop/web-0", "deploy/web". Pure."""

from __future__ import annotations

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
    """Read NAME, KIND/NAME, NAMESPACE/NAME or NAMESPACE/KIND/NAME. Raises Invalid for anything else."""
    parts = text.split("/")
    if not all(parts) or len(parts) > 3:
        raise _unreadable(text)
    *before, name = parts
    kind = _WORDS.get(before[-1].lower(), "") if before else "pod"
    if len(before) == 2:
        if not kind:
            raise _unreadable(text)
        return Target(kind, before[0], name)
    # A kind comes before a namespace that is called so: `kubectl` would read it in the same way.
    return Target(kind, namespace, name) if kind else Target("pod", before[0], name)


def _unreadable(text: str) -> Invalid:
    kinds = ", ".join(KINDS)
    return Invalid(
        "cannot be read as the name of an object",
        obj=text,
        step="explain",
        action=f"Write NAME, KIND/NAME, NAMESPACE/NAME or NAMESPACE/KIND/NAME; KIND is one of {kinds}.",
    )
