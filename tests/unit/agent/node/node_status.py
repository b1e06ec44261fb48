"""A machine, a runtime and a policy, and the Node status that they make: for the tables of this folder."""

from __future__ import annotations

import dataclasses
from typing import Any

from agent.node.model import MachineFacts, NodeInputs, NodePolicy
from agent.node.plan.status import node_status
from agent.runtime.model import RuntimeFacts, RuntimeHandler
from nodelib.json_values import Json

GIB = 1 << 30
NOW = 1_767_225_600.0
STAMP = "2026-01-01T00:00:00Z"
MACHINE = MachineFacts("m", "u", "b", "6.18", "Debian", "amd64", cpus=4, memory=8 * GIB, storage=100 * GIB, pids=32768)
RUNTIME = RuntimeFacts("containerd", "2.4.2", (RuntimeHandler("runc", True, True),), True, ())
INPUTS = NodeInputs(MACHINE, RUNTIME, (("InternalIP", "10.0.0.1"), ("Hostname", "n1")))
POLICY = NodePolicy(name="n1", labels={}, eviction_hard={"memory.available": "100Mi", "nodefs.available": "10%"})


def status(inputs: NodeInputs = INPUTS, old: Json | None = None, policy: NodePolicy = POLICY, now: float = NOW) -> Json:
    return node_status(old or {}, inputs, policy, now)[0]


def condition(found: Json, kind: str) -> Json:
    return next(entry for entry in found["conditions"] if entry["type"] == kind)


def inputs(**changes: Any) -> NodeInputs:
    return dataclasses.replace(INPUTS, **changes)
