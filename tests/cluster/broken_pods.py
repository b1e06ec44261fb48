"""Pods that are broken, each in one way: what `why` must name as the cause, and what it must advise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.builders.pods import container, manifest, sleeper

Object = dict[str, Any]
_NODE = {"kubernetes.io/hostname": "node1"}


@dataclass(frozen=True)
class Broken:
    """`target` is broken by `objects`; the `cause` must be in what `why` says of it, the `remedy` in its advice.

    `after`: what is done once it runs: "delete", or nothing.
    """

    target: str
    cause: str
    remedy: str
    objects: tuple[Object, ...]
    after: str = ""

    @property
    def name(self) -> str:
        return self.target.partition("/")[2]


def _pod(name: str, cause: str, remedy: str, *boxes: Object, after: str = "", **spec: Any) -> Broken:
    return Broken(f"pod/{name}", cause, remedy, (manifest(name, *boxes, **spec),), after)


def _argv(*argv: str, **more: Any) -> Object:
    return {**container(), "command": list(argv), **more}


def _sh(script: str, **more: Any) -> Object:
    return _argv("sh", "-c", script, **more)


def _env(kind: str, name: str, key: str) -> list[Object]:
    return [{"name": "IT", "valueFrom": {f"{kind}KeyRef": {"name": name, "key": key}}}]


def _mounted(volume: Object, path: str = "/data", **more: Any) -> tuple[Object, list[Object]]:
    return sleeper(volumeMounts=[{"name": "data", "mountPath": path, **more}]), [{"name": "data", **volume}]


def _with_volume(name: str, cause: str, remedy: str, volume: Object, path: str = "/data", **more: Any) -> Broken:
    box, volumes = _mounted(volume, path, **more)
    return _pod(name, cause, remedy, box, volumes=volumes)


def images() -> Iterator[Broken]:
    """Images that cannot be had."""
    far = "registry.invalid/none/such:1"
    yield _pod("image-far", "registry.invalid", "cannot reach the registry", container(image=far))
    yield _pod("image-init", "registry.invalid", "cannot reach", initContainers=[container("setup", image=far)])
    never = container(image="none.such/here:1", imagePullPolicy="Never")
    yield _pod("image-never", "is not present with pull policy of Never", "nodewright load", never)
    yield _pod("image-name", "InvalidImageName", "in lower case", container(image="UPPER/Case:1"))


def configuration() -> Iterator[Broken]:
    """What a container refers to and is not there, or may not be."""
    yield _pod("env-map", 'configmap "settings" not found', "kubectl", sleeper(env=_env("configMap", "settings", "a")))
    yield _pod("env-secret", 'secret "keys" not found', "kubectl", sleeper(env=_env("secret", "keys", "a")))
    yield _pod("env-map-key", "couldn't find key b", "key", sleeper(env=_env("configMap", "there", "b")))
    yield _pod("env-secret-key", "couldn't find key b", "key", sleeper(env=_env("secret", "there", "b")))
    yield _pod("env-from", 'configmap "settings"', "create", sleeper(envFrom=[{"configMapRef": {"name": "settings"}}]))
    yield _with_volume("volume-map", 'configmap "settings" not found', "create", {"configMap": {"name": "settings"}})
    yield _with_volume("volume-secret", 'secret "keys" not found', "create", {"secret": {"secretName": "keys"}})
    items = [{"key": "b", "path": "b"}]
    yield _with_volume(
        "volume-key", "references non-existent", "key", {"secret": {"secretName": "there", "items": items}}
    )
    sources = [{"configMap": {"name": "settings"}}]
    yield _with_volume("projected", 'configmap "settings" not found', "create", {"projected": {"sources": sources}})
    yield _with_volume("host-file", "is not a file", "on the node", {"hostPath": {"path": "/no/such", "type": "File"}})
    yield _with_volume(
        "host-folder", "is not a directory", "on the node", {"hostPath": {"path": "/no/such", "type": "Directory"}}
    )
    yield _pod("not-root", "runAsNonRoot", "runAsUser", sleeper(securityContext={"runAsNonRoot": True}))
    profile = {"type": "Localhost", "localhostProfile": "mine.json"}
    yield _pod("seccomp", "mine.json", "seccompProfile", sleeper(securityContext={"seccompProfile": profile}))
    sysctls = {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}
    yield _pod("sysctl", "SysctlForbidden", "allowedUnsafeSysctls", securityContext=sysctls)
    missing = sleeper(volumeMounts=[{"name": "data", "mountPath": "/data", "subPathExpr": "$(NONE)"}])
    yield _pod(
        "sub-path",
        "missing value for NONE",
        "environment variable",
        missing,
        volumes=[{"name": "data", "emptyDir": {}}],
    )


def starts() -> Iterator[Broken]:
    """Containers that the runtime cannot start."""
    yield _pod("no-command", "no such file or directory", "`command`", _argv("/no/such"))
    yield _pod("no-program", "executable file not found", "`command`", _argv("nosuchprogram"))
    yield _pod("no-permission", "permission denied", "mode", _argv("/etc/passwd"))
    yield _with_volume("over-a-file", "not a directory", "mountPath", {"emptyDir": {}}, "/etc/passwd")
    yield _pod("no-folder", "mkdir /etc/passwd", "workingDir", sleeper(workingDir="/etc/passwd"))
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "echo no config; exit 3"]}}}
    yield _pod("post-start", "exited with 3", "lifecycle.postStart", sleeper(lifecycle=hook))


def ends() -> Iterator[Broken]:
    """Containers that end."""
    yield _pod("crash", "exit code 7", "log", _sh("echo cannot open the database; exit 7"))
    yield _pod("exit-zero", "exit code 0", "Job", _sh("exit 0"))
    yield _pod("not-found", "exit code 127", "command", _sh("nosuchprogram"))
    limits = {"limits": {"memory": "16Mi"}}
    yield _pod(
        "oom", "limit of 16Mi", "resources.limits.memory", _sh("x=a; while :; do x=$x$x$x; done", resources=limits)
    )
    yield _pod("segfault", "SIGSEGV", "log", _sh("sh -c 'kill -SEGV $$$$'; exit $?"))
    yield _pod("failed", "exit code 3", "restartPolicy", _sh("echo bad input; exit 3"), restartPolicy="Never")
    yield _pod("init-crash", "exit code 3", "log", initContainers=[{**_sh("echo no db; exit 3"), "name": "setup"}])
    once = [{**_sh("exit 4"), "name": "setup"}]
    yield _pod("init-failed", "exit code 4", "restartPolicy", initContainers=once, restartPolicy="Never")
    yield _pod("init-stuck", "has not ended", "log", initContainers=[sleeper("setup")])
    side = {**_sh("exit 5"), "name": "side", "restartPolicy": "Always"}
    yield _pod("sidecar", "exit code 5", "log", initContainers=[side])
    yield _pod("deadline", "DeadlineExceeded", "activeDeadlineSeconds", activeDeadlineSeconds=3)
    filler = _sh(
        "dd if=/dev/zero of=/data/x bs=1M count=8; sleep 600", volumeMounts=[{"name": "data", "mountPath": "/data"}]
    )
    yield _pod("evicted", "Evicted", "sizeLimit", filler, volumes=[{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}])
    greedy = sleeper(resources={"requests": {"cpu": "900"}})
    yield _pod("out-of-cpu", "OutOfcpu", "nodeName", greedy, nodeName="node1")
    yield _pod("other-node", "NodeAffinity", "nodeName", nodeName="node1", nodeSelector={"disk": "none"})


def probes() -> Iterator[Broken]:
    """Probes that fail."""
    port = {"httpGet": {"port": 8080}, "periodSeconds": 1}
    yield _pod("ready-port", "connection refused", "Nothing listens", sleeper(readinessProbe=port))
    fails = {"exec": {"command": ["sh", "-c", "echo not yet; exit 1"]}, "periodSeconds": 1}
    yield _pod("ready-exec", "not yet", "log", sleeper(readinessProbe=fails))
    slow = {"exec": {"command": ["sleep", "30"]}, "periodSeconds": 2}
    yield _pod("ready-slow", "tim", "timeoutSeconds", sleeper(readinessProbe=slow))
    httpd = "mkdir /tmp/w; httpd -f -p 8080 -h /tmp/w"
    yield _pod(
        "ready-path",
        "404",
        "path",
        _sh(httpd, readinessProbe={"httpGet": {"port": 8080, "path": "/no"}, "periodSeconds": 1}),
    )
    yield _pod("alive", "liveness probe fails", "probe", sleeper(livenessProbe={**fails, "failureThreshold": 1}))
    yield _pod(
        "startup", "connection refused", "Nothing listens", sleeper(startupProbe={**port, "failureThreshold": 900})
    )
    yield _pod("gate", "example.com/lb", "owns the gate", readinessGates=[{"conditionType": "example.com/lb"}])


def scheduling() -> Iterator[Broken]:
    """Pods without a node."""
    yield _pod("much-cpu", "Insufficient cpu", "less cpu", sleeper(resources={"requests": {"cpu": "900"}}))
    yield _pod("much-memory", "Insufficient memory", "less memory", sleeper(resources={"requests": {"memory": "9Ti"}}))
    yield _pod(
        "device", "Insufficient example.com/gpu", "device plugin", sleeper(resources={"limits": {"example.com/gpu": 1}})
    )
    yield _pod("selector", "node affinity/selector", "disk=none", nodeSelector={"disk": "none"})
    held = sleeper(ports=[{"containerPort": 80, "hostPort": 18080}])
    first = manifest("port-holder", held, nodeSelector=_NODE)
    taken = manifest("port-taken", held, nodeSelector=_NODE)
    yield Broken("pod/port-taken", "free ports", "port-holder", (first, taken))
    held = sleeper(ports=[{"containerPort": 80, "hostPort": 18081}])
    both = tuple(manifest(name, held, nodeName="node1") for name in ("other-holder", "port-refused"))
    yield Broken("pod/port-refused", "NodePorts", "hostPort", both)
    same = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "alone"}}}]
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": same}}
    alone = manifest("alone", labels={"app": "alone"}, nodeName="node1")
    last = manifest("apart", labels={"app": "alone"}, nodeSelector=_NODE, affinity=apart)
    yield Broken("pod/apart", "anti-affinity", "podAntiAffinity", (alone, last))
    yield _pod("gated", "SchedulingGated", "schedulingGates", schedulingGates=[{"name": "example.com/wait"}])
    yield _pod("scheduler", "nosuch", "schedulerName", schedulerName="nosuch")
    box, volumes = _mounted({"persistentVolumeClaim": {"claimName": "nosuch"}})
    yield _pod("no-claim", 'persistentvolumeclaim "nosuch" not found', "claimName", box, volumes=volumes)
    box, volumes = _mounted({"persistentVolumeClaim": {"claimName": "unbound"}})
    yield _pod("unbound-claim", "unbound", "StorageClass", box, volumes=volumes)
    device = [{"name": "gpu", "resourceClaimName": "nosuch"}]
    yield _pod("no-device-claim", "nosuch", "ResourceClaim", resourceClaims=device)


def removals() -> Iterator[Broken]:
    """Pods that are deleted and do not go."""
    kept = manifest("kept")
    kept["metadata"]["finalizers"] = ["example.com/keep"]
    yield Broken("pod/kept", "example.com/keep", "patch pod", (kept,), after="delete")
    hook = {"preStop": {"exec": {"command": ["sleep", "300"]}}}
    slow = manifest("slow-hook", sleeper(lifecycle=hook), terminationGracePeriodSeconds=600)
    yield Broken("pod/slow-hook", "preStop hook is running", "SIGKILL", (slow,), after="delete")
    deaf = manifest("deaf", _sh("trap '' TERM; while :; do sleep 1; done"), terminationGracePeriodSeconds=600)
    yield Broken("pod/deaf", "sent SIGTERM and is still running", "SIGKILL", (deaf,), after="delete")


def every() -> list[Broken]:
    """All of them."""
    kinds = (images, configuration, starts, ends, probes, scheduling, removals)
    return [one for kind in kinds for one in kind()]
