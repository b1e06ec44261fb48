"""Which pod has which IDs, remembered in a file of each pod, so that an agent that starts again knows."""

from __future__ import annotations

import logging
from collections.abc import Collection

from agent.common.model.pods import Pod
from agent.userns import plan
from agent.userns.model import IdRange, UserNamespaceSettings
from agent.userns.ports import MappingFiles, SubordinateIds
from nodelib.errors import Invalid, Permanent, Temporary
from nodelib.json_values import Json
from nodelib.key_locks import KeyLocks

log = logging.getLogger(__name__)


class UserNamespaces:
    """Gives each pod its IDs, and takes them back.

    A pod's file that cannot be understood stops only that pod, and new ones that want IDs: nobody knows which are
    free until it has gone.
    """

    def __init__(self, settings: UserNamespaceSettings, files: MappingFiles, ids: SubordinateIds) -> None:
        self._settings, self._files, self._ids = settings, files, ids
        self._pool: IdRange | None = None
        self._held: dict[str, IdRange] = {}
        self._stored: set[str] = set()
        self._unclear: dict[str, str] = {}
        self._locks: KeyLocks[str] = KeyLocks()

    async def load(self) -> None:
        """Read the files of earlier agents. Raises Temporary if the pods' directories cannot be listed."""
        for uid, text in sorted((await self._files.read()).items()):
            try:
                if text is None:
                    raise Invalid("cannot be read or is far too long")
                found = plan.range_in(text)
                if other := next((one for one, held in self._held.items() if held.overlaps(found)), ""):
                    raise Invalid(f"has IDs that pod {other} has, too")
            except Invalid as error:
                self._unclear[uid] = error.message
                log.warning("%s %s: pod %s cannot start containers", self._files.path(uid), error.message, uid)
            else:
                self._held[uid] = found
                self._stored.add(uid)

    async def of(self, pod: Pod, handler: str, supporting: Collection[str]) -> Json:
        """CRI UserNamespace of the pod, the same as long as it lives. `supporting`: the handlers that can do it.

        {} for a pod with the node's users. Upstream's kubelet says mode NODE then, but containerd wants a container to
        say what its sandbox says, and those of earlier agents say nothing. Raises NodewrightError when the pod asks for
        users of its own and cannot have them.
        """
        if not plan.wants_own_users(pod):
            return {}
        plan.check(pod, handler, supporting)
        async with self._locks.of(pod.uid):
            found = self._held.get(pod.uid) or await self._give(pod)
            if pod.uid not in self._stored:
                await self._files.write(pod.uid, plan.text_of(found))
                self._stored.add(pod.uid)
        return plan.options(found)

    async def release(self, uid: str) -> None:
        """The pod's processes and its directory are gone."""
        self._held.pop(uid, None)
        self._unclear.pop(uid, None)
        self._stored.discard(uid)

    async def _give(self, pod: Pod) -> IdRange:
        for uid, problem in self._unclear.items():
            raise Permanent(
                f"{self._files.path(uid)} {problem}, so that nobody knows which IDs are free",
                obj=f"pod {pod.full_name}",
                step="user namespace",
                action=f"Delete the pod with UID {uid}: the file goes with it.",
            )
        pool = await self._find_pool()
        found = plan.free_range(pool, self._settings.ids_per_pod, self._held.values())
        if found is None:
            raise Temporary(
                f"all IDs are taken: {len(self._held)} pods have users of their own",
                obj=f"pod {pod.full_name}",
                step="user namespace",
                action="Delete pods of this node that have hostUsers: false, or give the user kubelet more IDs in "
                "/etc/subuid and /etc/subgid.",
            )
        self._held[pod.uid] = found
        return found

    async def _find_pool(self) -> IdRange:
        if self._pool is None:
            printed = await self._ids.of(plan.USER)
            length = self._settings.ids_per_pod
            pool = plan.subordinate_pool(*printed) if printed else plan.default_pool(length)
            plan.check_pool(pool, self._settings)
            self._pool = pool
        return self._pool
