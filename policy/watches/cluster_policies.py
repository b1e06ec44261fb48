"""Watches ClusterNetworkPolicies, and the Nodes that their rules select, for as long as the cluster has their CRD.

The CRD itself is watched, so that nothing is asked of the API server, and nothing is logged, where it is not installed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from nodelib.backoff import Backoff
from nodelib.json_values import Json, object_or_empty
from nodelib.kube.client import KubeClient
from nodelib.kube.definition import CRDS, Definition
from nodelib.kube.errors import ApiError, ApiUnreachable, NotServed
from nodelib.kube.reflector import Reflector, then_trimmed
from nodelib.tasks import side_by_side, unless
from policy.watches.network_policies import OnChange

log = logging.getLogger(__name__)

GROUP, VERSION, PLURAL = "policy.networking.k8s.io", "v1alpha2", "clusternetworkpolicies"
POLICIES = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
NODES = "/api/v1/nodes"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_PATIENCE = 10.0  # seconds; in a new cluster daemons start before their rights are there


class ClusterWatch:
    """`ready` is set when every policy has been reported, or when it is known that there is none."""

    def __init__(self, client: KubeClient, *, on_policy: OnChange, on_node: OnChange) -> None:
        self.ready = asyncio.Event()
        self._client = client
        self._on_policy, self._on_node = on_policy, on_node
        self._crd = Definition(client, GROUP, VERSION, PLURAL)
        self._reflectors: Sequence[Reflector] = ()
        self._refused = ""
        self._reported: set[str] = set()

    @property
    def last_error(self) -> str:
        """Why there are no news, "" if all is well."""
        errors = [self._refused, *(one.last_error for one in (self._crd.reflector, *self._reflectors))]
        return "; ".join(one for one in errors if one)

    async def run(self) -> None:
        """Until cancelled."""
        await self._permitted(CRDS, self._crd.params)
        await side_by_side(watch_the_CRD=self._crd.reflector.run(), watch_policies=self._watch_while_served())

    async def _watch_while_served(self) -> None:
        await self._crd.reflector.synced.wait()
        while True:
            if not self._crd.served.is_set():
                self.ready.set()
            await self._crd.served.wait()
            await self._follow()

    async def _follow(self) -> None:
        """Report policies and nodes until the CRD is gone; then report that the policies are."""
        if not await self._answers():
            return
        await self._permitted(NODES, {"limit": "1"})
        policies = Reflector(self._client, POLICIES, name=PLURAL, on_change=then_trimmed(self._report))
        nodes = Reflector(self._client, NODES, name="nodes", on_change=then_trimmed(self._on_node))
        self._reflectors = (policies, nodes)
        watches = side_by_side(policies=policies.run(), nodes=nodes.run(), announced=self._announce(policies))
        await unless(self._crd.gone, watches)
        self._reflectors = ()
        log.info("the CRD of ClusterNetworkPolicies is gone, and so are they")
        self._forget(self._reported)

    async def _announce(self, policies: Reflector) -> None:
        for one in self._reflectors:
            await one.synced.wait()
        # What an earlier run has reported, which ended by a failure, may be gone by now.
        self._forget(self._reported - {name for _, name in policies.store})
        log.info("ClusterNetworkPolicies are watched")
        self.ready.set()

    def _report(self, kind: str, obj: Json) -> None:
        name = str(object_or_empty(obj.get("metadata")).get("name", ""))
        (self._reported.discard if kind == "DELETED" else self._reported.add)(name)
        self._on_policy(kind, obj)

    def _forget(self, names: set[str]) -> None:
        for name in sorted(names):
            self._report("DELETED", {"metadata": {"name": name}})

    async def _answers(self) -> bool:
        """Wait until the API server serves the policies: some time after their CRD says so. False if it is gone."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=1.5, jitter=0.2)
        while self._crd.served.is_set():
            try:
                await self._permitted(POLICIES, {"limit": "1"})
            except NotServed:
                await asyncio.sleep(pause.next())
            else:
                return True
        return False

    async def _permitted(self, path: str, params: dict[str, str]) -> None:
        """Wait until the API server lets this daemon list that. Raises NotServed."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=1.5, jitter=0.2)
        now = asyncio.get_running_loop().time
        patient_until = now() + _PATIENCE
        while True:
            try:
                await self._client.get(path, params)
            except NotServed:
                raise
            except ApiError as error:
                if error.is_forbidden and now() > patient_until:
                    self._refuse(path, error)
                await asyncio.sleep(pause.next(error.retry_after))
            except ApiUnreachable as error:
                await asyncio.sleep(pause.next(error.retry_after))
            else:
                self._refused = ""
                return

    def _refuse(self, path: str, error: ApiError) -> None:
        """NetworkPolicies are enforced all the same: they do not depend on these rights."""
        if not self._refused:
            log.warning("ClusterNetworkPolicies are not enforced: this daemon may not list %s (%s).", path, error)
            log.warning("Give it the right to list and watch %s, %s and nodes.", "customresourcedefinitions", PLURAL)
        self._refused = f"ClusterNetworkPolicies are not enforced: {error}"
        self.ready.set()
