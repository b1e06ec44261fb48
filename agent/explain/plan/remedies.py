"""What a user can do about what a pod waits for: one sentence by reason, and by what the message names.

Only where the error itself does not say it already. Rules are tried in order; the first that fits counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subject:
    """What the sentence may name."""

    namespace: str
    pod: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class _Rule:
    reasons: frozenset[str]
    pattern: re.Pattern[str]
    action: str


def action_for(reason: str, message: str, subject: Subject) -> str:
    """The sentence, "" when there is nothing to say but what the message says."""
    for rule in _RULES:
        if rule.reasons and reason not in rule.reasons:
            continue
        found = rule.pattern.search(message)
        if found is not None:
            words = {"namespace": subject.namespace, "pod": subject.pod, "container": subject.container}
            return rule.action.format(**words, **found.groupdict())
    return ""


def _rule(reasons: str, pattern: str, action: str) -> _Rule:
    return _Rule(frozenset(reasons.split()), re.compile(pattern, re.IGNORECASE), action)


_PULL = "ErrImagePull ImagePullBackOff RegistryUnavailable"
_RULES = (
    _rule(_PULL, r"unauthorized|denied|forbidden|401|403", "Give the pod a pull secret: `kubectl create secret "
          "docker-registry NAME -n {namespace} …`, and name it in imagePullSecrets; or check that the image exists."),
    _rule(_PULL, r"not found|manifest unknown|404", "Check the image's name and tag: the registry has no such one."),
    _rule(_PULL, r"no such host|timeout|refused|unreachable|dial tcp", "The node cannot reach the registry: check its "
          "name, DNS and the way out of the node; or put the image on the node and set imagePullPolicy: IfNotPresent."),
    _rule(_PULL, r"x509|certificate", "The node does not trust the registry's certificate: add its CA on the node."),
    _rule(_PULL, "", "Check the image reference and that the node can reach its registry."),
    _rule("ErrImageNeverPull", "", "Put the image on the node, or set imagePullPolicy to IfNotPresent."),
    _rule("InvalidImageName InspectFailed", "", "Write the image as [registry/]name[:tag][@digest], in lower case."),
    _rule("", r"secrets? .*(?:not found|does not exist)", "Create it: `kubectl create secret generic … -n "
          "{namespace}`, or mark the reference optional."),
    _rule("", r"configmaps? .*(?:not found|does not exist)", "Create it: `kubectl create configmap … -n {namespace}`, "
          "or mark the reference optional."),
    _rule("", r"key.*(?:not found|non-existent|references)|references non-existent", "Add the key to the object, or "
          "mark the reference optional."),
    _rule("CreateContainerConfigError", "", "Mend what the message names; it is tried again by itself."),
    _rule("CrashLoopBackOff", "", "Read what it said last: `kubectl logs -n {namespace} {pod} -c {container} "
          "--previous`."),
    _rule("RunContainerError CreateContainerError", r"executable file not found|no such file", "The image has no such "
          "command: check `command` and `args` of container {container}."),
    _rule("RunContainerError CreateContainerError", r"permission denied", "The command may not be executed by the "
          "container's user: check its mode and securityContext."),
    _rule("FailedMount", r"persistentvolumeclaim|claim", "`kubectl describe pvc -n {namespace}` tells whether the "
          "claim is bound, and `kubectl get volumeattachments` whether its volume is attached."),
    _rule("FailedMount", "", "Mend what the message names; it is tried again by itself."),
    _rule("NetworkNotReady", "", "The node has no working CNI configuration: look at /etc/cni/net.d on it and at the "
          "pod network's pods or log."),
    _rule("FailedCreatePodSandBox", r'failed to find plugin "loopback"', "Set use_internal_loopback = true in the CNI "
          "section of containerd's configuration and restart it, or put the CNI plugins there."),
    _rule("FailedCreatePodSandBox", r'failed to find plugin "(?P<plugin>[^"]+)" in path \[(?P<path>[^]]*)', "Put the "
          "plugin {plugin} into {path} on the node (Debian's containernetworking-plugins are in /usr/lib/cni)."),
    _rule("FailedCreatePodSandBox", r"cni|network|netplugin", "The pod network refused: its message above tells why; "
          "look at its log on the node."),
    _rule("FailedCreatePodSandBox", r"runtimeclass|handler", "The node's runtime has no such handler: check "
          "runtimeClassName and the runtime's configuration."),
    _rule("OOMKilled", "", "Raise resources.limits.memory of container {container}, or find out what it needs "
          "(`kubectl top pod -n {namespace} {pod} --containers`)."),
    _rule("ReadinessProbeFailed StartupProbeFailed LivenessProbeFailed", r"connection refused", "Nothing listens at "
          "that port in container {container}: check the probe's port and what the program listens on."),
    _rule("ReadinessProbeFailed StartupProbeFailed LivenessProbeFailed", r"timeout|deadline", "The answer takes longer "
          "than timeoutSeconds: raise it, or see why container {container} is slow."),
    _rule("ReadinessProbeFailed StartupProbeFailed LivenessProbeFailed", "", "See why the probe fails: `kubectl logs "
          "-n {namespace} {pod} -c {container}`."),
    _rule("ReadinessGatesNotReady", "", "Whoever owns the gate sets that condition in the pod's status; look at that "
          "controller."),
    _rule("Stopping", "", "It ends by itself, by SIGKILL at the latest when its grace is over; sooner with `kubectl "
          "delete pod -n {namespace} {pod} --grace-period=1`."),
    _rule("Finalizers", "", "The controllers that own these finalizers must remove them; look at their logs. By hand, "
          "only if they are gone: `kubectl edit pod -n {namespace} {pod}`."),
    _rule("Unschedulable", r"insufficient (?P<what>[\w./-]*\w)", "Ask for less {what}, free some, or add a node."),
    _rule("Unschedulable", r"untolerated taint", "Tolerate the taint, or remove it from a node (`kubectl taint`)."),
    _rule("Unschedulable", r"node affinity|node selector", "Label a node as the pod wants it, or change its selector."),
    _rule("Unschedulable", r"persistentvolumeclaim|unbound|volume", "`kubectl describe pvc -n {namespace}` tells what "
          "the claim waits for."),
    _rule("Unschedulable", "", "`kubectl describe nodes` shows what each node has free."),
    _rule("UnexpectedAdmissionError", r"not enough cpus", "Ask for fewer whole CPUs, delete a pod that has some for "
          "itself, or ask for a part of one (1500m) and share; the scheduler counts CPUs, not whole ones."),
    _rule("SMTAlignmentError", "", "Ask for a multiple of the threads of a core, or leave the node's option "
          "full-pcpus-only out."),
    _rule("TopologyAffinityError", "", "Ask for what one NUMA node has free, or choose the node's "
          "topologyManagerPolicy best-effort."),
    _rule("CPUThrottled", r"limit (?P<limit>\S+)", "Raise resources.limits.cpu of container {container} from {limit}, "
          "or leave it out: the program stands still for the rest of each period in which it has used it up."),
    _rule("CPUStalled", "", "The node has too little CPU for what runs on it: raise resources.requests.cpu of "
          "container {container}, which is its share under pressure, or move something away."),
    _rule("ProbeSlow", "exec", "Raise its periodSeconds, or ask by httpGet, tcpSocket or grpc: each exec starts a "
          "process in the container."),
    _rule("ProbeSlow", "", "See why container {container} answers slowly, or raise its periodSeconds."),
    _rule("SchedulingGated", "", "Whoever set spec.schedulingGates removes them."),
)  # fmt: skip
