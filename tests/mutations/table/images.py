"""Images: when they are pulled and by whom, when they go; and the logs of containers."""

from __future__ import annotations

from tests.mutations.model import Mutation

_TESTS = ("unit/agent/images",)
_GC, _WORK = "agent/images/plan/image_gc.py", "agent/images/work/images.py"

TABLE = (
    Mutation(
        "pull-always", "imagePullPolicy Always",
        "agent/images/plan/images.py", 'return policy != "Always"', "return True",
        (*_TESTS, "unit/agent/pods/test_pod_worker.py", "unit/agent/pods"),
    ),
    Mutation(
        "pull-never", "imagePullPolicy Never",
        "agent/images/plan/images.py", 'return PullDecision.REFUSE if policy == "Never" else', "return", _TESTS,
    ),
    Mutation(
        "pull-back-off", "failed pulls are backed off",
        _WORK, "(at := entry[0].updated_at + entry[0].delay) > now", "(at := 0.0) > now",
        (*_TESTS, "unit/agent/pods/test_pod_worker.py", "unit/agent/pods"),
    ),
    Mutation(
        "pull-secrets", "imagePullSecrets",
        _WORK, "auths = await self._credentials.pull_auth(pod, wanted)", "auths = list[PullCredential]()",
        (*_TESTS, "unit/agent/pods/test_pod_worker.py", "unit/agent/pods"),
    ),
    Mutation(
        "pull-verified", "a pod may use a private image only with credentials of its own (KEP-2535)",
        _WORK, "return await self._records.must_pull(want.image, found.id, credentials)", "return False",
        (*_TESTS, "unit/agent/pods/test_pod_worker.py", "unit/agent/pods"),
    ),
    Mutation(
        "pull-rate", "registryPullQPS",
        _WORK, "if self._rate is not None and not self._rate.take():", "if False:", _TESTS,
    ),
    Mutation(
        "pull-parallel", "maxParallelImagePulls",
        _WORK, "self._slots = Gate(parallel, longest)", "self._slots = Gate(1000, longest)",
        (*_TESTS, "unit/agent/pods/test_pod_worker.py", "unit/agent/pods"),
    ),
    Mutation(
        "pull-priority", "of the pulls that wait, that of the most important pod is next",
        _WORK, "self._slots.place(pod.priority,", "self._slots.place(0,",
        (*_TESTS, "unit/agent/pods/test_pod_worker.py", "unit/agent/pods"),
    ),
    Mutation(
        "pull-progress-events", "events about the progress of a pull",
        _WORK, '''self._event(pod, want, "PullProgress", f'Pulling image "{want.image}": {text}')''', "pass", _TESTS,
    ),
    Mutation(
        "image-gc", "images are removed when their disk is nearly full",
        _GC, "if usage_percent(capacity, available) < policy.high:", "if True:", _TESTS,
    ),
    Mutation(
        "image-gc-low", "image garbage collection ends at the low threshold",
        _WORK.replace("images.py", "image_gc.py"), "if enough is not None and freed >= enough:", "if False:", _TESTS,
    ),
    Mutation(
        "image-gc-age", "imageMaximumGCAge",
        _GC, "if not policy.max_age or", "if True or", _TESTS,
    ),
    Mutation(
        "image-gc-young", "imageMinimumGCAge",
        _GC, "if now - one.detected >= policy.min_age]", "if True]", _TESTS,
    ),
    Mutation(
        "image-gc-pinned", "pinned images stay",
        _GC, "if not one.pinned and one.used < now]", "if one.used < now]", _TESTS,
    ),
    Mutation(
        "image-gc-used", "images in use stay",
        _GC, "if not one.pinned and one.used < now]", "if not one.pinned]", _TESTS,
    ),
    Mutation(
        "image-gc-volumes", "the images of image volumes are in use",
        _GC, "return frozenset(found | set(mounted))", "return frozenset(found)", _TESTS,
    ),
    Mutation(
        "log-rotation", "containerLogMaxSize",
        "agent/logs/work.py", "size is None or size >= self._settings.max_size", "False", ("unit/agent/logs",),
    ),
    Mutation(
        "log-rotation-files", "containerLogMaxFiles",
        "agent/logs/plan/rotation.py", "kept[: max(0, len(kept) - max(0, max_files - 2))]", "kept[:0]",
        ("unit/agent/logs",),
    ),
    Mutation(
        "log-rotation-packed", "rotated logs are compressed",
        "agent/logs/plan/rotation.py",
        "pack = [name for name in kept[len(excess) :] if", "pack = [name for name in kept if False and",
        ("unit/agent/logs",),
    ),
)  # fmt: skip
