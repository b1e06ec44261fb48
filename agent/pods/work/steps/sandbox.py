"""The RunSandbox and StopSandbox steps."""

from __future__ import annotations

from dataclasses import replace

from agent.common.model.errors import CriError
from agent.common.model.pods import SandboxState
from agent.containers.model import PreparedPod
from agent.pods.model.steps import RunSandbox, StopSandbox
from agent.pods.work.steps import back_offs
from agent.pods.work.steps.context import Context, StepFailed
from agent.userns.plan import wants_own_users
from nodelib.backoff import Backoff
from nodelib.errors import NodewrightError, Permanent
from nodelib.json_values import Json

# containerd's words while another call makes this sandbox (internal/cri/server/sandbox_run.go): an earlier agent's.
_UNDER_WAY = "failed to reserve sandbox name"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between two tries
_LIMIT = 300.0  # seconds; a call that makes a sandbox has ended by then (runtime/edge/cri.py)


class SandboxSteps:
    """The sandboxes of one pod, and the configuration of the newest."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._config: Json = {}

    async def run(self, step: RunSandbox) -> None:
        """Raises StepFailed."""
        context, sandbox_id = self._context, ""
        prepared = context.memory.prepared or context.memory.sandbox_prepared
        with context.acting(), context.deps.containers.deferred_removal.urgent():
            if prepared is None:
                raise Permanent("the pod is not prepared", obj=context.memory.pod.full_name, step="sandbox")
            if step.replaces:
                context.event("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
            context.deps.metrics.started_pods.inc()
            context.memory.own_users_untried = wants_own_users(context.memory.pod)
            if context.memory.own_users_untried:
                context.deps.metrics.started_user_namespaced_pods.inc()
            try:
                sandbox_id = await self._make(step, prepared)
                if step.replaces:
                    back_offs.extend_sandbox(context)
            except NodewrightError as error:
                context.own_users_failed()
                code = f"rpc error: code = {error.code} desc = " if isinstance(error, CriError) else ""
                context.deps.metrics.started_pods_errors.inc()
                context.warn("FailedCreatePodSandBox", f"Failed to create pod sandbox: {code}{error.message}")
                raise StepFailed("FailedCreatePodSandBox", error) from error
            finally:
                await context.refresh(sandbox=sandbox_id)

    async def stop(self, step: StopSandbox) -> None:
        context, urgent = self._context, self._context.deps.containers.deferred_removal.urgent
        async with context.turn_to_end():
            with context.acting(step.sandbox_id), urgent():
                await context.deps.containers.runtime.stop_sandbox(step.sandbox_id)
                context.memory.stopped_sandboxes.add(step.sandbox_id)
                await context.refresh(sandbox=step.sandbox_id)

    async def config_of(self, sandbox: SandboxState, prepared: PreparedPod) -> Json:
        """The CRI PodSandboxConfig of this sandbox; its containers are created with the same one."""
        if (self._config.get("metadata") or {}).get("attempt") == sandbox.attempt:
            return self._config
        return await self._context.deps.containers.configs.sandbox_config(
            self._context.memory.pod, replace(prepared, handler=sandbox.runtime_handler), sandbox.attempt
        )

    async def _make(self, step: RunSandbox, prepared: PreparedPod) -> str:
        deps, pod = self._context.deps, self._context.memory.pod
        handler = ""
        if pod.spec.get("runtimeClassName"):
            handler = await deps.status.api.runtime_handler(pod.spec["runtimeClassName"])
        chosen = replace(prepared, handler=handler)
        self._config = await deps.containers.configs.sandbox_config(pod, chosen, step.attempt)
        pauses, deadline = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), deps.clock.monotonic() + _LIMIT
        while True:
            try:
                async with deps.containers.sandbox_gate.place(group=pod.namespace):
                    with deps.metrics.running_sandbox(handler), deps.containers.ends.starting(pod.namespace):
                        return await deps.containers.runtime.run_sandbox(self._config, handler)
            except CriError as error:
                if _UNDER_WAY not in error.message or deps.clock.monotonic() > deadline:
                    raise
            if made := await self._made_meanwhile(step.attempt):
                return made
            await deps.clock.sleep(pauses.next())

    async def _made_meanwhile(self, attempt: int) -> str:
        """The id of the sandbox that the call of an earlier agent has made, "" while that call is under way.

        Ready or not: the next plan sees. Such a call goes on after its agent was killed (runtime/edge/starts.py), and
        its sandbox is not listed before it is complete.
        """
        context = self._context
        await context.refresh()
        seen = context.deps.observer.seen(context.memory.pod.uid)
        return next((one.id for one in seen.sandboxes if one.attempt == attempt), "")
