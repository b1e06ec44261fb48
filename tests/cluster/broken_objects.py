"""Everything but pods that can be broken: workloads, claims, Services, Ingresses. As tests/cluster/broken_pods.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.builders.pods import manifest, sleeper
from tests.cluster.broken_pods import Broken

Object = dict[str, Any]
_FAILS = {**sleeper(), "command": ["sh", "-c", "echo cannot open the database; exit 7"]}


def _template(name: str, *boxes: Object, restart: str = "Always", **spec: Any) -> Object:
    pod = manifest(name, *boxes, restartPolicy=restart, **spec)
    return {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}


def _object(group: str, kind: str, name: str, **spec: Any) -> Object:
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def _workload(kind: str, name: str, template: Object, **spec: Any) -> Object:
    labels = {"matchLabels": {"app": name}}
    return _object("apps/v1", kind, name, selector=labels, template=template, **spec)


def _deployment(name: str, *boxes: Object, more: Object | None = None, **pod: Any) -> Object:
    return _workload("Deployment", name, _template(name, *boxes, **pod), **(more or {}))


def _claim(name: str, **spec: Any) -> Object:
    needs = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return _object("v1", "PersistentVolumeClaim", name, **needs, **spec)


def workloads() -> Iterator[Broken]:
    widgets = sleeper(resources={"requests": {"example.com/widget": 1}, "limits": {"example.com/widget": 1}})
    quota = _object("v1", "ResourceQuota", "widgets", hard={"requests.example.com/widget": "0"})
    yield Broken("deploy/over-quota", "exceeded quota: widgets", "quota", (quota, _deployment("over-quota", widgets)))
    yield Broken(
        "deploy/no-account",
        'serviceaccount "nosuch" not found',
        "create serviceaccount nosuch",
        (_deployment("no-account", serviceAccountName="nosuch"),),
    )
    yield Broken(
        "rs/no-priority",
        "no PriorityClass with name nosuch",
        "priorityClassName",
        (_workload("ReplicaSet", "no-priority", _template("no-priority", priorityClassName="nosuch")),),
    )
    yield Broken("deploy/crashing", "exit code 7", "log", (_deployment("crashing", _FAILS),))
    late = _deployment("late", {**sleeper(), "image": "registry.invalid/x:1"}, more={"progressDeadlineSeconds": 5})
    yield Broken("deploy/late", "ProgressDeadlineExceeded", "rollout", (late,))
    yield Broken("deploy/paused", "paused", "rollout resume", (_deployment("paused", more={"paused": True}),))
    storage = [{"metadata": {"name": "data"}, "spec": _claim("data")["spec"]}]
    box = sleeper(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    database = _workload(
        "StatefulSet", "database", _template("database", box), serviceName="database", volumeClaimTemplates=storage
    )
    yield Broken("sts/database", "unbound", "StorageClass", (database,))
    nowhere = _workload("DaemonSet", "nowhere", _template("nowhere", nodeSelector={"disk": "none"}))
    yield Broken("ds/nowhere", "no node", "disk=none", (nowhere,))
    yield Broken(
        "ds/crashing-ds",
        "exit code 7",
        "log",
        (_workload("DaemonSet", "crashing-ds", _template("crashing-ds", _FAILS)),),
    )


def jobs() -> Iterator[Broken]:
    def job(name: str, *boxes: Object, **spec: Any) -> Object:
        return _object("batch/v1", "Job", name, template=_template(name, *boxes, restart="Never"), **spec)

    yield Broken("job/fails", "BackoffLimitExceeded", "log", (job("fails", _FAILS, backoffLimit=0),))
    yield Broken(
        "job/too-long", "DeadlineExceeded", "activeDeadlineSeconds", (job("too-long", activeDeadlineSeconds=3),)
    )
    yield Broken("job/suspended", "suspend", "kubectl", (job("suspended", suspend=True),))
    each = {"spec": job("x")["spec"]}
    cron = _object("batch/v1", "CronJob", "asleep", schedule="* * * * *", suspend=True, jobTemplate=each)
    yield Broken("cronjob/asleep", "suspend", "kubectl", (cron,))


def claims() -> Iterator[Broken]:
    yield Broken("pvc/unbound", "no default StorageClass", "StorageClass", (_claim("unbound"),))
    yield Broken("pvc/no-class", '"nosuch"', "StorageClass", (_claim("no-class", storageClassName="nosuch"),))
    yield Broken(
        "pvc/no-volume", "no PersistentVolume", "PersistentVolume", (_claim("no-volume", storageClassName=""),)
    )


def ways() -> Iterator[Broken]:
    def service(name: str, **spec: Any) -> Object:
        return _object("v1", "Service", name, **{"ports": [{"port": 80}], **spec})

    def ingress(name: str, backend: str, **spec: Any) -> Object:
        to = {"service": {"name": backend, "port": {"number": 80}}}
        return _object("networking.k8s.io/v1", "Ingress", name, defaultBackend=to, **spec)

    yield Broken(
        "svc/balanced",
        "loadBalancerClass example.com/absent",
        "NodePort",
        (service("balanced", type="LoadBalancer", loadBalancerClass="example.com/absent", selector={"app": "none"}),),
    )
    lost = service("nobody", selector={"app": "none-such"})
    yield Broken("svc/nobody", "no pod", "Correct the selector of the Service", (lost,))
    port = [{"port": 80, "targetPort": "http"}]
    yield Broken(
        "svc/no-port",
        "names a port http",
        "targetPort",
        (service("no-port", ports=port, selector={"app": "port-holder"}),),
    )
    yield Broken("svc/unready", "ready", "why", (service("unready", selector={"app": "ready-port"}),))
    yield Broken("ing/nobody-serves", "controller", "addons add", (ingress("nobody-serves", "nobody"),))
    yield Broken(
        "ing/no-class", '"nosuch"', "ingressClassName", (ingress("no-class", "nobody", ingressClassName="nosuch"),)
    )


def every() -> list[Broken]:
    """All of them."""
    return [one for kind in (workloads, jobs, claims, ways) for one in kind()]
