"""How a registered CSI driver appears in the Node and its CSINode. Follows pkg/volume/csi/nodeinfomanager."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agent.common.model.label_syntax import LABEL_KEY, LABEL_VALUE
from agent.volumes.model.csi import DriverFacts, DueUpdate
from nodelib.errors import Invalid, Permanent
from nodelib.json_values import Json, decode
from nodelib.text import one_line

NODE_ID = "csi.volume.kubernetes.io/nodeid"
_SHORTEST_PERIOD = 10  # seconds; the API server takes no shorter one


def check_driver(name: str, versions: tuple[str, ...]) -> None:
    """Raises Invalid for a driver without a 1.x version of CSI."""
    if not any(version.removeprefix("v").startswith("1.") for version in versions):
        raise Invalid(
            f"none of the versions specified {list(versions)} are supported",
            obj=f"CSI driver {name}",
            step="register",
            action="The driver's registrar must offer CSI 1.x (supported_versions).",
        )


def check_facts(facts: DriverFacts) -> None:
    """Raises Permanent for facts that the Node and its CSINode cannot have: they are refused as a whole, each time.

    Limits: node_id of the CSI specification, names and values of labels, int32 of CSINode.
    """
    node_id = facts.node_id
    wrong = (
        (not node_id, "no node_id"),
        (len(node_id.encode()) > 256 or not node_id.isprintable(), f"the node_id {one_line(node_id, 64)!r}"),
        (not all(map(_is_label, facts.topology.items())), "a topology that cannot be labels of the Node"),
        (len(facts.topology) > 64, f"{len(facts.topology)} segments of topology"),
        (not facts.max_volumes < 1 << 31, f"max_volumes_per_node {facts.max_volumes}"),
    )
    for is_wrong, what in wrong:
        if is_wrong:
            raise Permanent(f"NodeGetInfo gives {what}", obj=f"CSI driver {facts.name}", step="register")


def update_period(driver: Json | None) -> float | None:
    """Seconds between two questions of how many volumes the node can have; None: it is asked when it registers."""
    period = ((driver or {}).get("spec") or {}).get("nodeAllocatableUpdatePeriodSeconds")
    if not isinstance(period, int) or isinstance(period, bool) or period <= 0:
        return None
    return float(max(period, _SHORTEST_PERIOD))


def due(now: float, periods: Mapping[str, float], known: Mapping[str, DueUpdate]) -> dict[str, DueUpdate]:
    """When each driver is asked next (monotonic seconds): a whole period after it was last, or after that changed."""
    found = {}
    for name, period in periods.items():
        before = known.get(name)
        if before is None or before.period != period:
            found[name] = DueUpdate(period, now + period)
        else:
            found[name] = before if before.at > now else DueUpdate(period, now + period)
    return found


def _is_label(entry: tuple[str, str]) -> bool:
    name, value = entry
    return bool(LABEL_KEY.fullmatch(name) and LABEL_VALUE.fullmatch(value))


def node_patch(node: Json, name: str, facts: DriverFacts | None) -> Json:
    """Merge patch that adds the driver to the Node's annotation and its topology to the labels; None removes it.

    {} when nothing changes. Raises Permanent for a topology that contradicts the Node's labels.
    """
    meta = node["metadata"]
    ids = _known_ids(meta)
    before = dict(ids)
    patch: Json = {}
    if facts is None:
        ids.pop(name, None)
    else:
        ids[name] = facts.node_id
        labels = meta.get("labels") or {}
        wrong = [key for key, value in facts.topology.items() if labels.get(key, value) != value]
        if wrong:
            raise Permanent(
                f"detected topology value collision: driver reported {wrong[0]}={facts.topology[wrong[0]]} "
                f"but the Node has {wrong[0]}={labels[wrong[0]]}",
                obj=f"CSI driver {name}",
                step="register",
                action="Correct the Node's label or the driver's topology.",
            )
        added = {key: value for key, value in facts.topology.items() if key not in labels}
        if added:
            patch["labels"] = added
    if ids != before:
        patch["annotations"] = {NODE_ID: json.dumps(ids, sort_keys=True, separators=(",", ":")) if ids else None}
    return {"metadata": patch} if patch else {}


def csi_node(existing: Json | None, node: Json, name: str, facts: DriverFacts | None) -> Json | None:
    """The CSINode with this driver added, or removed (`facts` None); None when nothing changes."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    made = existing or {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": node["metadata"]["name"], "ownerReferences": [owner]},
        "spec": {"drivers": []},
    }
    drivers = list((made.get("spec") or {}).get("drivers") or [])
    others = [one for one in drivers if one["name"] != name]
    if facts is not None:
        entry: Json = {"name": name, "nodeID": facts.node_id}
        if facts.topology:
            entry["topologyKeys"] = sorted(facts.topology)
        if facts.max_volumes > 0:
            entry["allocatable"] = {"count": facts.max_volumes}
        others.append(entry)
    if sorted(others, key=_name) == sorted(drivers, key=_name) and existing is not None:
        return None
    return {**made, "spec": {**(made.get("spec") or {}), "drivers": others}}


def _name(entry: Json) -> str:
    return str(entry["name"])


def _known_ids(meta: Json) -> dict[str, str]:
    text = (meta.get("annotations") or {}).get(NODE_ID) or "{}"
    try:
        found = decode(text)
    except ValueError:
        return {}  # not JSON, so written by something else: replace it
    return dict(found) if isinstance(found, dict) else {}
