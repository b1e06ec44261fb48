"""What to do about pull secrets that a pod names and its node could not use. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.images.model.pulls import NOT_FOUND, UnreadSecret
from nodelib.advice import filled

_SHOWN = 3
_MISSING = (
    "Create the Secret {secret}, which the pod's imagePullSecrets name and which is not there: `kubectl create secret "
    "docker-registry {secret} -n {namespace} …`."
)
_UNKNOWN = (
    "See that the Secret {secret}, which the pod's imagePullSecrets name, is there (`kubectl get secret {secret} -n "
    "{namespace}`): the node could not read it."
)
_UNUSABLE = "Correct the Secret {secret}, which the pod's imagePullSecrets name and which could not be used: {problem}."


def advice(unread: Sequence[UnreadSecret], namespace: str) -> str:
    """A sentence for each of the first ones; "" for none."""
    return " ".join(_sentences(unread, namespace))


def _sentences(unread: Sequence[UnreadSecret], namespace: str) -> Iterator[str]:
    for one in unread[:_SHOWN]:
        words = {"secret": one.name, "namespace": namespace, "problem": one.problem}
        yield filled(_MISSING if one.problem == NOT_FOUND else _UNUSABLE if one.problem else _UNKNOWN, words)
    if len(unread) > _SHOWN:
        yield f"So it is with {len(unread) - _SHOWN} more."
