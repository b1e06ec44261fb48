"""Volumes: what is in them, who may read it, how it is renewed."""

from __future__ import annotations

from tests.mutations.model import Mutation

_TESTS = ("unit/agent/volumes/test_payload.py", "unit/agent/volumes")
_PAYLOAD = "agent/volumes/plan/payload.py"

TABLE = (
    Mutation(
        "token-rotation", "projected tokens are renewed at 80 % of their lifetime",
        "agent/volumes/plan/tokens.py", "return token is not None and now < token.renew_at", "return token is not None",
        _TESTS,
    ),
    Mutation(
        "token-rotation-wakes", "somebody looks when a token is due",
        "agent/volumes/work/tokens.py", "if not plan.is_fresh(token, now)}", "if False}",
        (*_TESTS, "unit/agent/pods/test_volume_refresh.py"),
    ),
    Mutation(
        "token-audience", "audience of a projected token",
        "agent/volumes/plan/tokens.py", '[request.audience] if request.audience else []', "[]", _TESTS,
    ),
    Mutation(
        "config-map-updates", "a changed ConfigMap reaches the volume",
        "agent/volumes/work/manager.py",
        "changed = await self._update(pod, paths, _on_disk(plans))",
        "changed = list[str]()", _TESTS,
    ),
    Mutation(
        "config-map-watch", "a changed ConfigMap is noticed",
        "agent/volumes/plan/watches.py", "return get_failed or (changed and known_before)", "return get_failed", _TESTS,
    ),
    Mutation(
        "immutable-objects", "an immutable object is not watched",
        "agent/volumes/plan/watches.py", 'Step.STOP if (current or {}).get("immutable") else Step.WATCH', "Step.WATCH",
        _TESTS,
    ),
    Mutation(
        "optional-source", "optional of a ConfigMap or Secret",
        _PAYLOAD, 'optional = bool(source.get("optional"))', "optional = False", _TESTS,
    ),
    Mutation(
        "item-mode", "mode of an item",
        _PAYLOAD, "defaults.file(data[key], item)", "defaults.file(data[key], {})", _TESTS,
    ),
    Mutation(
        "file-owners", "owners of files in volumes (defaultUser, user)",
        _PAYLOAD, "if not self.users or user is None:", "if True:", _TESTS,
    ),
    Mutation(
        "empty-dir-mode", "the mode of an emptyDir",
        "agent/volumes/edge/setup.py", "if plan.mode is not None and not existed:", "if False:",
        ("unit/agent/volumes", "netns/test_volumes.py"),
    ),
    Mutation(
        "downward-volume", "labels in a downwardAPI volume",
        _PAYLOAD, 'text = downward.pod_field(pod, ref.get("fieldPath", ""))', 'text = ""', _TESTS,
    ),
    Mutation(
        "trust-bundle", "clusterTrustBundle projections",
        _PAYLOAD, 'if origin := part.get("clusterTrustBundle"):', "if origin := None:", _TESTS,
    ),
    Mutation(
        "pod-certificate", "podCertificate projections",
        _PAYLOAD, 'if origin := part.get("podCertificate"):', "if origin := None:", _TESTS,
    ),
    Mutation(
        "volume-path-check", "an item's path cannot leave the volume",
        _PAYLOAD, 'elif ".." in parts:', "elif False:", _TESTS,
    ),
    Mutation(
        "fs-group", "fsGroup",
        "agent/volumes/edge/ownership.py", "    os.chown(path, -1, group)\n", "",
        ("netns/test_volumes.py", "netns/test_ownership_races.py"),
    ),
    Mutation(
        "fs-group-policy", "fsGroupChangePolicy OnRootMismatch",
        "agent/volumes/edge/ownership.py", 'if policy == "OnRootMismatch" and', "if False and",
        ("netns/test_volumes.py", "netns/test_ownership_races.py", "netns/test_csi_volumes.py"),
    ),
    Mutation(
        "atomic-volumes", "a reader sees all of the old or all of the new files",
        "agent/volumes/edge/atomic.py", "os.rename(new, os.path.join(target, _DATA))",
        "(os.path.lexists(data := os.path.join(target, _DATA)) and os.unlink(data), os.rename(new, data))",
        ("unit/agent/volumes/test_atomic.py", "netns/test_volumes.py"),
    ),
    Mutation(
        "volume-expansion", "a volume grows while its pod runs",
        "agent/volumes/work/expansion.py", "if claim is None or not (is_new or plan.asks_for_more(claim)):",
        "if True:", _TESTS,
    ),
    Mutation(
        "volume-expansion-before-start", "a volume that grew while no pod used it has grown before its pod begins",
        "agent/volumes/work/csi_grower.py", "if EXPAND not in facts.capabilities or not plan.grew_unused(volume):",
        "if True:", _TESTS,
    ),
    Mutation(
        "mounted-elsewhere", "a file system that another mount namespace has is not repaired below it",
        "csi/edge/disk.py", "alive = await alone(self._is_mounted, image)",
        "alive = bool(await alone(self._mounts, image))", ("netns/test_csi_volumes.py",),
    ),
    Mutation(
        "read-write-once-pod", "ReadWriteOncePod",
        "agent/volumes/work/manager.py", "            if holder:", "            if False:", _TESTS,
    ),
)  # fmt: skip
