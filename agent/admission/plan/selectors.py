"""nodeSelector and required node affinity (k8s.io/component-helpers/scheduling/corev1/nodeaffinity)."""

from __future__ import annotations

from collections.abc import Mapping

from nodelib.json_values import Json


def matches_node_affinity(spec: Json, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the node satisfies nodeSelector and one term of the required node affinity."""
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_term(term, name, labels) for term in required.get("nodeSelectorTerms") or [])


def _term(term: Json, name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_holds(one, labels) for one in expressions) and all(
        _holds(one, {"metadata.name": name}) for one in fields
    )


def _holds(requirement: Json, labels: Mapping[str, str]) -> bool:
    found, values = labels.get(requirement["key"]), requirement.get("values") or []
    match requirement.get("operator"):
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            mine, other = _number(found), _number(values[0] if values else None)
            if mine is None or other is None:
                return False  # the API server takes any text for the other one
            return mine > other if requirement["operator"] == "Gt" else mine < other
    return False


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
