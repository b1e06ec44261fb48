"""One claim and its PersistentVolume as an API server has them, for the VolumeExpander."""

from __future__ import annotations

from collections.abc import Mapping

from nodelib.json_values import Json


class FakeClaimApi:
    """See ClaimApi. A claim of `size`, bound to a volume of `size`. `states`: all that was said of the resize."""

    def __init__(self, size: str = "10Mi") -> None:
        self.the_volume: Json = {"metadata": {"name": "pv-1"}, "spec": {"capacity": {"storage": size}}}
        self.the_claim: Json = {
            "metadata": {"name": "c", "uid": "uid-of-c"},
            "spec": {"resources": {"requests": {"storage": size}}},
            "status": {"phase": "Bound", "capacity": {"storage": size}},
        }
        self.states: list[str] = []
        self.reads: list[str] = []

    def ask(self, size: str) -> None:
        """The user asks for more, and whoever looks after the disks has grown the volume."""
        self.the_claim["spec"]["resources"]["requests"]["storage"] = size
        self.the_volume["spec"]["capacity"]["storage"] = size
        self.the_claim["status"] |= {
            "allocatedResources": {"storage": size},
            "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
        }

    @property
    def size(self) -> str:
        return str(self.the_claim["status"]["capacity"]["storage"])

    @property
    def conditions(self) -> list[str]:
        return [one["type"] for one in self.the_claim["status"].get("conditions") or []]

    async def claim(self, namespace: str, name: str) -> Json | None:
        self.reads.append(f"claim {namespace}/{name}")
        return self.the_claim if name == "c" else None

    async def volume(self, name: str) -> Json | None:
        self.reads.append(f"volume {name}")
        return self.the_volume if name == "pv-1" else None

    async def patch_claim(self, namespace: str, name: str, patch: Json) -> None:
        """Strategic merge: maps by key, where None removes; conditions by their type."""
        status, wanted = self.the_claim["status"], dict(patch["status"])
        for change in wanted.pop("conditions", []):
            kept = [one for one in status.get("conditions") or [] if one["type"] != change["type"]]
            status["conditions"] = kept if change.get("$patch") == "delete" else [*kept, change]
        for key, values in wanted.items():
            merged: Mapping[str, str | None] = {**(status.get(key) or {}), **values}
            status[key] = {name: value for name, value in merged.items() if value is not None}
        self.states.append(str(status["allocatedResourceStatuses"].get("storage") or "done"))
