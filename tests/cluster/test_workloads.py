"""Controllers with our nodes: roll-outs, DaemonSets, Jobs, StatefulSets, a second scheduler, a lost node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.builders.pods import container, manifest, sleeper
from tests.cluster.world import Object, World, condition, holds, is_ready

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

APP = {"app": "work"}


async def test_a_deployment_rolls_forward_and_back(world: World) -> None:
    """Never fewer Ready pods than asked for; an undo brings the first template back."""
    await world.create(_deployment(3, _stamped("one")))
    await _rolled_out(world)
    fewest = asyncio.create_task(_fewest_ready(world), name="count the Ready pods")
    await world.kubectl("set", "env", "deployment/work", "STAMP=two")
    await _rolled_out(world)
    assert await _stamps(world) == ["two"] * 3
    await world.kubectl("rollout", "undo", "deployment/work")
    await _rolled_out(world)
    assert await _stamps(world) == ["one"] * 3
    fewest.cancel()
    assert await fewest >= 3
    history = await world.kubectl("rollout", "history", "deployment/work")
    assert [line.split()[0] for line in history.text.splitlines()[2:] if line.strip()] == ["2", "3"]


async def test_a_roll_out_that_cannot_start_takes_nothing_away(world: World) -> None:
    """A wrong command in the new template: the old pods go on, and the Deployment says that it makes no progress."""
    await world.create(_deployment(2, _stamped("one")))
    await _rolled_out(world)
    template = {"spec": {"containers": [{"name": "main", "command": ["/none"]}]}}
    # Only now: a first roll-out may take longer on a busy machine.
    wrong = {"spec": {"progressDeadlineSeconds": 5, "template": template}}
    await world.api.patch(world.path("deployments", "work"), wrong, kind="strategic")
    stuck = await world.until(
        "work",
        lambda one: condition(one, "Progressing").get("reason") == "ProgressDeadlineExceeded",
        "no progress",
        kind="deployments",
    )
    assert stuck["status"]["availableReplicas"] == 2
    commands = [one["spec"]["containers"][0]["command"][0] for one in await world.pods("app=work") if is_ready(one)]
    assert commands == ["sh", "sh"]


async def test_a_daemon_set_has_one_pod_on_each_node(world: World) -> None:
    template = _template(sleeper(), tolerations=[{"operator": "Exists"}])
    await world.create(_workload("DaemonSet", template))
    await world.until("work", lambda one: one["status"].get("numberReady") == 2, "2 Ready", kind="daemonsets")
    first = {one["spec"]["nodeName"]: one["metadata"]["name"] for one in await world.pods("app=work")}
    assert sorted(first) == ["node1", "node2"]
    await world.delete(first["node2"])

    async def replaced() -> bool:
        ready = {
            one["spec"]["nodeName"]: one["metadata"]["name"] for one in await world.pods("app=work") if is_ready(one)
        }
        kept = ready.get("node1") == first["node1"]
        return bool(kept and ready.get("node2", first["node2"]) != first["node2"])

    await holds(replaced, "node2 has a new pod, node1 its old one")


async def test_a_job_runs_to_completion_and_tries_again(world: World) -> None:
    """Three indexes; index 1 fails once and is tried again."""
    once = "mark=/kept/$JOB_COMPLETION_INDEX; [ $mark != /kept/1 ] || [ -e $mark ] || { touch $mark; exit 3; }"
    kept = {"name": "kept", "hostPath": {"path": f"/run/{world.namespace}", "type": "DirectoryOrCreate"}}
    box = container(script=once, volumeMounts=[{"name": "kept", "mountPath": "/kept"}])
    template = {"spec": {"restartPolicy": "Never", "nodeName": "node1", "volumes": [kept], "containers": [box]}}
    spec = {"completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimit": 4, "template": template}
    await world.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}, "spec": spec})
    try:
        done = await world.until(
            "work", lambda one: condition(one, "Complete").get("status") == "True", "complete", kind="jobs"
        )
    finally:
        await world.in_node("node1", "rm", "-rf", f"/run/{world.namespace}")
    assert (done["status"]["succeeded"], done["status"]["failed"]) == (3, 1)
    assert done["status"]["completedIndexes"] == "0-2"


async def test_a_cron_job_makes_its_jobs(world: World) -> None:
    """Its schedule is true in every minute, so the controller makes a Job within one; `kubectl create job` at once."""
    template = {"spec": {"restartPolicy": "Never", "containers": [container(script="echo tick")]}}
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}
    await world.create({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "work"}, "spec": spec})
    await world.kubectl("create", "job", "by-hand", "--from=cronjob/work")
    done = await world.until(
        "by-hand", lambda one: condition(one, "Complete").get("status") == "True", "complete", kind="jobs"
    )
    assert done["status"]["succeeded"] == 1
    seen = await world.until("work", lambda one: one["status"].get("lastSuccessfulTime"), "a run", kind="cronjobs")
    assert seen["status"]["lastSuccessfulTime"]


async def test_a_stateful_set_keeps_names_and_claims(world: World) -> None:
    """A pod that comes back has its name and finds what it wrote."""
    volumes = [f"{world.namespace}-{number}" for number in range(2)]
    for name in volumes:
        await world.api.post("/api/v1/persistentvolumes", _local_volume(name, world.namespace))
    try:
        mount = {"name": "data", "mountPath": "/data"}
        write = "hostname >> /data/starts; sleep 3600 & wait"
        template = _template(container(script=write, volumeMounts=[mount]))
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": world.namespace,
                "resources": {"requests": {"storage": "1Mi"}},
            },
        }
        await world.create(
            _workload("StatefulSet", template, replicas=2, serviceName="work", volumeClaimTemplates=[claim])
        )
        await world.until("work", lambda one: one["status"].get("readyReplicas") == 2, "2 Ready", kind="statefulsets")
        await world.delete("work-0")
        await world.until("work-0", lambda one: one.get("deleted"), "deleted")
        await world.until("work-0", is_ready, "back")
        assert (await world.shell("work-0", "cat /data/starts")).split() == ["work-0", "work-0"]
        assert (await world.shell("work-1", "cat /data/starts")).split() == ["work-1"]
    finally:
        for name in volumes:
            await world.api.delete(f"/api/v1/persistentvolumes/{name}")
        for node in world.cluster.nodes:
            await world.in_node(node.name, "rm", "-rf", f"/run/{world.namespace}")


async def test_a_second_scheduler_takes_the_pods_that_name_it(world: World, tmp_path: Path) -> None:
    await world.create(manifest("mine", schedulerName="second"))
    await world.run(manifest("theirs"))
    assert not (await world.get("mine"))["spec"].get("nodeName")
    async with _scheduler(world, "second", tmp_path):
        await world.ready("mine")
        scheduled = await world.event("mine", "Scheduled")
        assert scheduled["reportingComponent"] == "second"


async def test_pods_leave_a_node_that_is_lost(world: World) -> None:
    """An agent that is silent: its Node is unknown after the grace period, its pods are replaced on the other node;
    when it is back, what was replaced is gone from it and the Node is Ready."""
    limit = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for what in ("not-ready", "unreachable")
    ]
    template = _template(sleeper(), tolerations=limit, nodeSelector={})
    prefer = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_prefers("node2")]}}
    template["spec"]["affinity"] = prefer
    await world.create(_workload("Deployment", template, replicas=1))
    await _rolled_out(world)
    (before,) = await world.pods("app=work")
    assert before["spec"]["nodeName"] == "node2"
    async with world.stopped_agent("node2", seconds_at_most=240):

        async def replaced() -> bool:
            pods = await world.pods("app=work")
            return any(one["spec"].get("nodeName") == "node1" and is_ready(one) for one in pods)

        await holds(replaced, "another pod is Ready on node1", seconds=180)
        node = await world.api.get("/api/v1/nodes/node2")
        assert condition(node, "Ready")["status"] == "Unknown"
        assert condition(node, "Ready")["reason"] == "NodeStatusUnknown"
        assert (await world.get(before["metadata"]["name"]))["metadata"]["deletionTimestamp"]
    await world.gone(before["metadata"]["name"])

    async def back() -> bool:
        again = await world.api.get("/api/v1/nodes/node2")
        return condition(again, "Ready")["status"] == "True" and not again["spec"].get("taints")

    await holds(back, "node2 is Ready again and takes pods")


def _workload(kind: str, template: Object, **spec: object) -> Object:
    body = {"selector": {"matchLabels": APP}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "work"}, "spec": body}


def _template(*containers: Object, **spec: object) -> Object:
    made = manifest("work", *containers, labels=APP, **spec)
    return {"metadata": {"labels": APP}, "spec": made["spec"]}


def _deployment(replicas: int, box: Object, **spec: object) -> Object:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    return _workload("Deployment", _template(box), replicas=replicas, strategy=strategy, **spec)


def _stamped(stamp: str) -> Object:
    return sleeper(env=[{"name": "STAMP", "value": stamp}])


async def _rolled_out(world: World) -> None:
    await world.kubectl("rollout", "status", "deployment/work", "--timeout=120s", timeout=150)


async def _stamps(world: World) -> list[str]:
    """The stamps of the pods that are there and not on their way out."""
    stay = [one for one in await world.pods("app=work") if "deletionTimestamp" not in one["metadata"]]
    return sorted(one["spec"]["containers"][0]["env"][0]["value"] for one in stay)


async def _fewest_ready(world: World) -> int:
    """Counts until it is cancelled."""
    fewest = 1000
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            fewest = min(fewest, sum(map(is_ready, await world.pods("app=work"))))
            await asyncio.sleep(0.05)
    return fewest


def _local_volume(name: str, storage_class: str) -> Object:
    """A directory of node1, made when a pod mounts it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": f"/run/{storage_class}/{name}", "type": "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [_on("node1")]}},
        },
    }


def _on(node: str) -> Object:
    return {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}


def _prefers(node: str) -> Object:
    return {"weight": 100, "preference": _on(node)}


@contextlib.asynccontextmanager
async def _scheduler(world: World, name: str, scratch: Path) -> AsyncIterator[None]:
    """A second kube-scheduler under another name, ended with the block."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": world.cluster.admin_kubeconfig},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": name}],
    }
    file, log = scratch / "scheduler.json", scratch / "scheduler.log"
    file.write_text(json.dumps(config))
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            world.cluster.tools["kube-scheduler"], f"--config={file}", "--secure-port=0", stdout=out, stderr=out
        )
    try:
        yield
    except BaseException:
        print(log.read_text()[-3000:])
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
