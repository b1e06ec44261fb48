"""What a driver is asked for one volume of a pod: to stage it on the node, and to publish it at the pod's path.

Each is recorded in vol_data.json before the driver is asked. What is staged is not staged again; a driver that has
published a volume already does nothing, as the CSI specification says. Follows pkg/volume/csi (csi_attacher.go,
csi_mounter.go).
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.common.model.errors import PluginError
from agent.common.model.pods import Pod
from agent.volumes.model.csi import CsiSecrets, CsiVolume, DriverFacts
from agent.volumes.plan import csi as plan
from agent.volumes.ports import CsiDisk, CsiDriver, CsiVolumeApi
from agent.volumes.work.csi_contexts import CsiContexts
from agent.volumes.work.csi_records import CsiRecords
from agent.volumes.work.csi_stagings import CsiStagings
from nodelib.json_values import Json
from nodelib.threads import alone


@dataclass(frozen=True, slots=True)
class Mounting:
    """A volume that is being mounted for a pod at `target`, and all that its driver is told of it.

    `described` is the CSIDriver object, `context` the metadata of its attachment.
    """

    pod: Pod
    volume: CsiVolume
    target: str
    described: Json | None
    driver: CsiDriver
    facts: DriverFacts
    context: dict[str, str]
    secrets: CsiSecrets


@dataclass(frozen=True, slots=True)
class CsiMounterDeps:
    """`root_dir` is the kubelet's, `node` its name."""

    root_dir: str
    node: str
    api: CsiVolumeApi
    disk: CsiDisk
    records: CsiRecords
    stagings: CsiStagings
    contexts: CsiContexts


class CsiMounter:
    """Its caller holds the lock of the volume (CsiStagings.locks)."""

    def __init__(self, deps: CsiMounterDeps) -> None:
        self._root_dir, self._node = deps.root_dir, deps.node
        self._api, self._disk = deps.api, deps.disk
        self._records, self._stagings, self._contexts = deps.records, deps.stagings, deps.contexts

    async def stage_and_publish(self, one: Mounting) -> str:
        """Returns the staging path. Raises PluginError."""
        staging = await self.stage(one)
        await self._publish(one, await self.publish_request(one, staging))
        return staging

    async def stage(self, one: Mounting) -> str:
        """Stage it unless that is done; returns the staging path, "" for a driver that does not stage."""
        volume = one.volume
        if not plan.stages(volume, one.facts):
            return ""
        folder, path = plan.staging_folder(self._root_dir, volume), plan.staging_path(self._root_dir, volume)
        if self._contexts.enabled:
            await self._unstage_other_context(volume)
        if self._stagings.is_staged(volume.key):
            return path
        await alone(self._disk.make, path)
        await self._records.save(one.pod, folder, plan.staging_data(volume))
        try:
            await one.driver.stage(plan.stage_request(volume, one.facts, path, one.context, one.secrets))
        except PluginError as error:
            if plan.is_final_error(error.code):
                await alone(self._disk.remove, folder, path)
            raise
        self._stagings.staged(volume.key)
        return path

    async def _unstage_other_context(self, volume: CsiVolume) -> None:
        """A mount keeps its context: what an earlier pod left staged with another one is made anew."""
        for one in (await self._records.look()).staged.get(volume.key, ()):
            if one.context != volume.context:
                await self._stagings.unstage(volume.key, one.path)

    async def publish_request(self, one: Mounting, staging: str) -> Json:
        """The CSI NodePublishVolumeRequest, with the tokens of its pod that the driver asks for."""
        requests = plan.token_requests(one.described)
        tokens = [await self._api.token(one.pod, request) for request in requests]
        volume_context, publish_secrets = plan.publish_contexts(
            one.volume, one.pod, one.described, dict(zip(requests, tokens, strict=True)), one.secrets
        )
        return plan.publish_request(
            one.volume,
            one.facts,
            target=one.target,
            staging=staging,
            context=one.context,
            volume_context=volume_context,
            secrets=publish_secrets,
        )

    async def _publish(self, one: Mounting, request: Json) -> None:
        """Makes the directory of the target; the driver makes the target itself, as the CSI specification says."""
        folder, record = one.target.rpartition("/")[0], plan.volume_data(one.volume, self._node)
        await self._records.save(one.pod, folder, record)
        try:
            await one.driver.publish(request)
        except PluginError as error:
            if plan.is_final_error(error.code):
                await alone(self._disk.remove, folder, one.target)
            raise
