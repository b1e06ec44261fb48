"""What a user can do about what a pod waits for, by the reason and the text of the error.

Advice is given only where the error does not say it itself. Rules are tried in order, and the first match counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.explain.plan import pull_secrets
from agent.images.model.pulls import UnreadSecret
from nodelib.advice import advised
from nodelib.advice import rule as _rule


@dataclass(frozen=True, slots=True)
class Subject:
    """The pod and container that the advice may name.

    `pull_policy`: of the container's image, "" for not known; `unread`: pull secrets of the pod that cannot be used.
    """

    namespace: str
    pod: str
    container: str = ""
    pull_policy: str = ""
    unread: tuple[UnreadSecret, ...] = ()


def action_for(reason: str, message: str, subject: Subject) -> str:
    """The advice; "" when there is nothing to add to the message."""
    words = {
        "namespace": subject.namespace,
        "pod": subject.pod,
        "container": subject.container,
        "and_policy": "" if subject.pull_policy == _IF_NOT_PRESENT else f" and set imagePullPolicy: {_IF_NOT_PRESENT}",
    }
    found = advised(_RULES, reason, message, words)
    if not subject.unread or reason not in _PULL.split():
        return found
    own = pull_secrets.advice(subject.unread, subject.namespace)
    return own if advised(_REFUSED, reason, message, words) else f"{found} {own}"


_IF_NOT_PRESENT = "IfNotPresent"
_PULL = "ErrImagePull ImagePullBackOff RegistryUnavailable"
_CREATE = "RunContainerError CreateContainerError"
_NO_ROOM = "OutOfcpu OutOfmemory OutOfpods OutOfephemeral-storage"
_PROBE = "ReadinessProbeFailed StartupProbeFailed LivenessProbeFailed"
_REFUSED = (
    _rule(_PULL, r"unauthorized|denied|forbidden|401|403", "Create a pull secret (`kubectl create secret "
          "docker-registry NAME -n {namespace} …`) and name it in the pod's imagePullSecrets. If it names one, see "
          "that it is there (`kubectl get secrets -n {namespace}`) and is for this registry: a missing one is left out "
          "of the pull. Or check that the image exists."),
)  # fmt: skip
_RULES = (
    *_REFUSED,
    _rule(_PULL, r"not found|manifest unknown|404", "Check the image's name and tag: the registry does not have it."),
    _rule(_PULL, r"no such host|timeout|refused|unreachable|dial tcp", "The node cannot reach the registry: check "
          "the registry's name, the node's DNS and its outgoing connections; or load the image onto the "
          "node (`nodewright load IMAGE` in a cluster of `nodewright up`){and_policy}."),
    _rule(_PULL, r"x509|certificate", "The node does not trust the registry's certificate: install its CA on the "
          "node; in a cluster of `nodewright up`, as caFile of `registries` in the file of --config."),
    _rule(_PULL, r"first record does not look like a tls|http response to https", "The registry answers without TLS: "
          "serve it by https, or tell the node's runtime its http:// address; in a cluster of `nodewright up`, as the "
          "url of a mirror of `registries` in the file of --config."),
    _rule(_PULL, "", "Check the image reference, and that the node can reach its registry."),
    _rule("ErrImageNeverPull", r'image "(?P<image>[^"]+)"', "Set imagePullPolicy to IfNotPresent, or load the "
          "image: `docker save -o image.tar {image}`, then `nodewright load image.tar`."),
    _rule("ErrImageNeverPull", "", "Load the image onto the node, or set imagePullPolicy to IfNotPresent."),
    _rule("InvalidImageName InspectFailed", "", "Write the image as [registry/]name[:tag][@digest], in lower case."),
    _rule("", r"secrets? .*(?:not found|does not exist)", "Create the Secret (`kubectl create secret generic … -n "
          "{namespace}`), or mark the reference as optional."),
    _rule("", r"configmaps? .*(?:not found|does not exist)", "Create the ConfigMap (`kubectl create configmap … -n "
          "{namespace}`), or mark the reference as optional."),
    _rule("", r"key.*(?:not found|non-existent|references)|references non-existent", "Add the key to the object, or "
          "mark the reference as optional."),
    _rule("CreateContainerConfigError", "", "Fix what the message names; it is retried automatically."),
    _rule(_CREATE, r'seccomp profile "(?P<path>[^"]+)"', "Put the profile at {path} on the node, or change "
          "seccompProfile of container {container}: type RuntimeDefault needs no file."),
    _rule(_CREATE, "apparmor", "Load the AppArmor profile on the node, or change appArmorProfile of container "
          "{container}."),
    _rule(_CREATE, r'error mounting .* to rootfs at "(?P<path>[^"]+)".*not a directory', "In the image {path} is a "
          "file and the volume is a folder, or the other way round: change mountPath of container {container}, or "
          "mount one file of the volume there by subPath."),
    _rule(_CREATE, r'error mounting .* to rootfs at "(?P<path>[^"]+)"', "Change the volume that container "
          "{container} mounts at {path}, or its mountPath."),
    _rule(_CREATE, r"mkdir (?P<path>\S+): not a directory|chdir to cwd", "The working directory cannot be entered: "
          "change workingDir of container {container} to a folder of the image, or leave it out."),
    _rule(_CREATE, "exec format error", "The program is built for another kind of CPU, or is a script without #!: "
          "use an image of this node's architecture."),
    _rule(_CREATE, r"unable to find user (?P<user>[^:]+)", "The image has no user {user}: set runAsUser of "
          "container {container} to a number."),
    _rule("ConnectionsLimited", "", "Let the pod keep and use again connections that it has; or raise the node's "
          "net.netfilter.nf_conntrack_max (conntrack.min and maxPerCore of the proxy's configuration)."),
    _rule("PostStartHookError", "", "Correct lifecycle.postStart of container {container}, which is ended and "
          "started again as long as the hook fails."),
    _rule("EndsByItself", "", "A container whose restartPolicy is Always must not end. If its work is done by then, "
          "run it as a Job or set restartPolicy: OnFailure; if it is a server, let it stay in the foreground. What "
          "it wrote: `kubectl logs -n {namespace} {pod} -c {container} --previous`."),
    _rule("CrashLoopBackOff", r"exit code 127\b", "A command was not found: check `command` and `args` of container "
          "{container}, and its log: `kubectl logs -n {namespace} {pod} -c {container} --previous`."),
    _rule("CrashLoopBackOff", r"exit code 126\b", "A command may not be executed: check the mode of the file, and "
          "`command` and `args` of container {container}."),
    _rule("CrashLoopBackOff", "", "Read the log of the last attempt: `kubectl logs -n {namespace} {pod} -c "
          "{container} --previous`."),
    _rule(_CREATE, r"executable file not found|no such file", "The image does not contain this command: check "
          "`command` and `args` of container {container}."),
    _rule(_CREATE, "permission denied", "The container's user may not execute the command: check the file's mode "
          "and the securityContext of container {container}."),
    _rule("FailedMount Unschedulable", r'persistentvolumeclaim "(?P<claim>[^"]+)" not found', "Create the claim "
          "{claim}, or correct claimName in the pod: `kubectl get pvc -n {namespace}` lists what exists."),
    _rule("FailedMount", r"persistentvolumeclaim|claim|\bPVC\b", "Check that the claim is bound (`kubectl describe "
          "pvc -n {namespace}`) and that its volume is attached (`kubectl get volumeattachments`)."),
    _rule("FailedMount", "", "Fix what the message names; it is retried automatically."),
    _rule("NetworkNotReady", "", "The node has no working CNI configuration: check /etc/cni/net.d on the node, and "
          "the pods or the log of the pod network."),
    _rule("FailedCreatePodSandBox", r'failed to find plugin "loopback"', "Set use_internal_loopback = true in the "
          "CNI section of containerd's configuration and restart containerd, or install the CNI plugins in that "
          "path."),
    _rule("FailedCreatePodSandBox", r'failed to find plugin "(?P<plugin>[^"]+)" in path \[(?P<path>[^]]*)',
          "Install the plugin {plugin} into {path} on the node (Debian's package containernetworking-plugins has it "
          "in /usr/lib/cni)."),
    _rule("FailedCreatePodSandBox", r"hostPort \S+ is", "A pod that exists keeps its hostPort: delete it (`kubectl "
          "delete pod -n {namespace} {pod}`) and create it with another one, or without, as a Service of type NodePort "
          "does the same; or end what listens there on the node."),
    _rule("FailedCreatePodSandBox", r"cni|network|netplugin", "The pod network failed, for the reason in the "
          "message above: check the pod network's log on the node."),
    _rule("FailedCreatePodSandBox", "does not support user namespaces", "Give the node runc 1.2 or newer and "
          "containerd 2.0 or newer, or remove hostUsers from the pod."),
    _rule("FailedCreatePodSandBox", r"runtimeclass|handler", "The node's runtime does not have this handler: check "
          "the pod's runtimeClassName and the runtime's configuration."),
    _rule("OOMKilled", "", "Raise resources.limits.memory of container {container}, or find out how much it needs "
          "(`kubectl top pod -n {namespace} {pod} --containers`, which needs metrics-server)."),
    _rule(_PROBE, "connection refused", "Nothing listens on that port in container {container}: compare the probe's "
          "port with the port that the program listens on."),
    _rule(_PROBE, r"timeout|timed out|deadline", "The answer takes longer than the probe's timeoutSeconds: raise "
          "it, or find out why container {container} is slow."),
    _rule(_PROBE, r"statuscode: (?P<code>\d+)", "The program answers {code}, and a probe needs 200 to 399: correct "
          "httpGet.path and its port, or find out why: `kubectl logs -n {namespace} {pod} -c {container}`."),
    _rule(_PROBE, "", "Find out why the probe fails: `kubectl logs -n {namespace} {pod} -c {container}`."),
    _rule("ReadinessGatesNotReady", "", "The controller that owns the gate must set this condition in the pod's "
          "status: check that controller and its log."),
    _rule("Stopping", "", "Wait: it is killed by SIGKILL at the latest when its grace period is over. To end it "
          "sooner, run `kubectl delete pod -n {namespace} {pod} --grace-period=1`."),
    _rule("Finalizers", "", "Wait until the controllers that own these finalizers remove them, and check their "
          "logs. If the controllers are gone, remove them by hand: `kubectl patch pod -n {namespace} {pod} "
          "--type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'`."),
    _rule("Running", "", "The other containers start when it has ended. See what it does: `kubectl logs -n "
          "{namespace} {pod} -c {container}`."),
    _rule("Failed", "", "It is not started again, because restartPolicy does not allow it. Mend what its log tells "
          "(`kubectl logs -n {namespace} {pod} -c {container}`). A pod with an owner, such as a Job, is replaced if "
          "that allows another try; delete any other (`kubectl delete pod -n {namespace} {pod}`) and create it "
          "again."),
    _rule("Evicted", r"EmptyDir|ephemeral", "Let it write less, or raise the sizeLimit of the volume or the limit "
          "of ephemeral-storage. A pod with an owner is replaced; remove this record by `kubectl delete pod -n "
          "{namespace} {pod}`."),
    _rule("Evicted", r"low on resource: (?P<what>[\w.-]*\w)", "Free {what} on the node, and request as much of it "
          "as the pod uses: pods that use more than they request are evicted first. A pod with an owner is "
          "replaced; remove this record by `kubectl delete pod -n {namespace} {pod}`."),
    _rule("Evicted Preempting NodeShutdown Terminated", "", "A pod with an owner is replaced. Remove this record by "
          "`kubectl delete pod -n {namespace} {pod}`."),
    _rule("DeadlineExceeded", "", "It ran longer than activeDeadlineSeconds: raise it or make the work shorter, "
          "delete the pod (`kubectl delete pod -n {namespace} {pod}`) and create it again."),
    _rule(_NO_ROOM, r"resource: (?P<what>[^\s,]+)", "Ask for less {what} or free some on that node. Leave out "
          "nodeName, so that the scheduler chooses a node with room. Then delete the pod (`kubectl delete pod -n "
          "{namespace} {pod}`) and create it again."),
    _rule("NodePorts", "", "Another pod of this node has the same hostPort: choose another port, or leave out "
          "nodeName, so that the scheduler chooses a node where it is free. Then delete the pod (`kubectl delete "
          "pod -n {namespace} {pod}`) and create it again."),
    _rule("NodeAffinity", "", "The node has not the labels that nodeSelector or nodeAffinity of the pod ask for: "
          "leave out nodeName, so that the scheduler chooses, or label the node. Then delete the pod (`kubectl "
          "delete pod -n {namespace} {pod}`) and create it again."),
    _rule("SysctlForbidden", "", "Leave the sysctl out of securityContext.sysctls, or allow it by "
          "allowedUnsafeSysctls in the kubelet's configuration of the node. Then delete the pod (`kubectl delete "
          "pod -n {namespace} {pod}`) and create it again."),
    _rule("NoResourceClaim", "", "Create the ResourceClaim in its namespace, or correct resourceClaimName in the pod: "
          "`kubectl get resourceclaims -n {namespace}` lists what exists."),
    _rule("NoScheduler", "", "Correct spec.schedulerName (usually left out) and create the pod again, or start that "
          "scheduler."),
    _rule("NodeGone", "", "Delete the pod (`kubectl delete pod -n {namespace} {pod} --force`), or let the node "
          "register again: `kubectl get nodes` lists those that exist."),
    _rule("Unschedulable", "not have enough free storage", "No node has room for the volume of its claim: ask for less "
          "in the claim, or delete claims and VolumeSnapshots that nobody needs; `kubectl get csistoragecapacities -A` "
          "shows how much each node has left."),
    _rule("Unschedulable", "unbound", "Its claim must be bound first: `kubectl get pvc -n {namespace}` shows which "
          "one is not, and `nodewright why pvc/NAME -n {namespace}` says what that waits for."),
    _rule("Unschedulable", "free ports", "Every node that fits has the pod's hostPort in use: choose another "
          "hostPort, or delete the pod that has it."),
    _rule("Unschedulable", "anti-affinity", "Every node that fits has a pod that podAntiAffinity keeps it away "
          "from: add a node, or make the rule preferred instead of required."),
    _rule("Unschedulable", r"spread constraints \(missing required label", "Nodes have no label of the name that is "
          "the topologyKey in the pod's topologySpreadConstraints: correct it, or label the nodes; `kubectl get nodes "
          "--show-labels` shows what they have."),
    _rule("Unschedulable", "topology spread", "Another pod would make the nodes too uneven: add a node, or set "
          "whenUnsatisfiable: ScheduleAnyway in topologySpreadConstraints."),
    _rule("Unschedulable", r"insufficient (?P<what>[\w.-]+\.[\w.-]+/[\w.-]*\w)", "Ask for less {what}, or see that "
          "its device plugin runs on a node and reports it: `kubectl describe nodes`."),
    _rule("Unschedulable", r"insufficient (?P<what>[\w./-]*\w)", "Ask for less {what}, free some, or add a node."),
    _rule("Unschedulable", "untolerated taint", "Tolerate the taint in the pod, or remove it from a node (`kubectl "
          "taint`)."),
    _rule("Unschedulable", "were unschedulable", "Nodes are cordoned: `kubectl get nodes` shows which, and `kubectl "
          "uncordon` with a node's name lets pods onto it again."),
    _rule("Unschedulable", "too many pods", "The nodes have all the pods that they may have: delete some, add a "
          "node, or raise maxPods."),
    _rule("Unschedulable", r"node affinity|node selector", "Label a node as the pod's selector or affinity "
          "requires, or change the pod."),
    _rule("Unschedulable", r"persistentvolumeclaim|unbound|volume", "Find out what the claim waits for: `kubectl "
          "describe pvc -n {namespace}`."),
    _rule("Unschedulable", "", "See what each node has free: `kubectl describe nodes`."),
    _rule("UnexpectedAdmissionError", "not enough cpus", "Ask for fewer whole CPUs; or delete a pod that has "
          "exclusive CPUs; or ask for a fraction (1500m) and share CPUs. The scheduler does not count exclusive "
          "CPUs."),
    _rule("SMTAlignmentError", "", "Ask for a multiple of the number of threads per core, or remove the option "
          "full-pcpus-only from the node's cpuManagerPolicyOptions."),
    _rule("TopologyAffinityError", "", "Ask for no more than one NUMA node has free, or set the node's "
          "topologyManagerPolicy to best-effort."),
    _rule("CPUThrottled", r"limit (?P<limit>\S+)", "Raise resources.limits.cpu of container {container} from "
          "{limit}, or remove the limit: once the limit is used up, the program is paused for the rest of each "
          "period."),
    _rule("CPUStalled", "", "The node has too little CPU for its pods: raise resources.requests.cpu of container "
          "{container}, which is its share when CPU is short, or move pods to another node."),
    _rule("ProbeSlow", "exec", "Raise its periodSeconds, or probe by httpGet, tcpSocket or grpc: each exec starts a "
          "process in the container."),
    _rule("ProbeSlow", "", "Find out why container {container} answers slowly, or raise the probe's periodSeconds."),
    _rule("SchedulingGated", "", "The controller that set spec.schedulingGates must remove them: check that "
          "controller and its log."),
)  # fmt: skip
