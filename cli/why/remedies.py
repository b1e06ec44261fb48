"""What a user can do about an object that is not a pod, by the reason and the text of what it waits for. Pure.

For pods: agent/explain/plan/remedies.py. Commands are written as `kubectl …`; cli/why/wording.py turns them into what
works on this machine.
"""

from __future__ import annotations

from cli.why.model import namespace_of
from nodelib.advice import advised, rule
from nodelib.json_values import Json

_RULES: tuple[tuple[str, str, str], ...] = (
    ("", r"exceeded quota: (?P<quota>[^\s,]+)", "Raise the quota or free what it counts: `kubectl describe quota "
     "{quota} -n {namespace}` shows used and allowed."),
    ("", r"failed quota: (?P<quota>[^\s:]+): must specify ", "Give the containers that the message names what it asks "
     "for, under resources in the pod template, or make a LimitRange that fills it in; `kubectl describe quota "
     "{quota} -n {namespace}` shows the quota."),
    ("", r'serviceaccount \"(?P<account>[^\"]+)\" not found', "Create it: `kubectl create serviceaccount {account} "
     "-n {namespace}`; or correct serviceAccountName in the pod template."),
    ("", r"no PriorityClass with name (?P<cls>\S+)", "Correct priorityClassName in the pod template, or create the "
     "class; `kubectl get priorityclasses` lists what exists."),
    ("", "violates PodSecurity", "Change what the message names in the pod template, or allow it with the label "
     "pod-security.kubernetes.io/enforce of the namespace: `kubectl get namespace {namespace} --show-labels`."),
    ("", r"(?:minimum|maximum) (?:cpu|memory|storage)", "Change the resources in the pod template, or the limits of "
     "the namespace: `kubectl describe limitrange -n {namespace}`."),
    ("", "failed calling webhook", "An admission webhook does not answer: `kubectl get "
     "validatingwebhookconfigurations,mutatingwebhookconfigurations` lists them."),
    ("", r"configmap|secret|spec\.\S+: (?:Invalid|Required|Forbidden)", "Correct what the message names in the pod "
     "template: `kubectl edit {kind} {name} -n {namespace}`."),
    ("ProgressDeadlineExceeded", "", "Mend what its newest pods wait for, or go back: `kubectl rollout undo {kind} "
     "{name} -n {namespace}`."),
    ("RolloutUnderWay", "", "Wait; if it stays so, mend what its newest pods wait for, or go back: `kubectl rollout "
     "undo {kind} {name} -n {namespace}`."),
    ("Paused", "", "Roll it out: `kubectl rollout resume {kind} {name} -n {namespace}`."),
    ("Suspended", "", "Let it run: `kubectl patch {kind} {name} -n {namespace} -p {resume}`."),
    ("NoNodeFits", r"(?P<labels>.+)", "Label a node: `kubectl label nodes --all {labels}` labels all of them; or "
     "change nodeSelector in its template."),
    ("NoNodeFits", "", "Compare its nodeSelector, affinity and tolerations with the nodes: `kubectl get nodes "
     "--show-labels`."),
    ("NoPods", "", "Wait a moment. If it stays so, look at the controller manager: `nodewright status`."),
    ("BackoffLimitExceeded", "", "Mend what the log of its last pod tells (`kubectl logs -n {namespace} job/{name}`), "
     "delete the Job (`kubectl delete job {name} -n {namespace}`) and create it again; a CronJob makes the next one by "
     "itself."),
    ("DeadlineExceeded", "", "It ran longer than spec.activeDeadlineSeconds: raise it or make the work shorter, "
     "delete the Job (`kubectl delete job {name} -n {namespace}`) and create it again."),
    ("FailedCreate", "", "Correct what the message names, then wait: its controller tries again by itself. `kubectl "
     "describe {kind} {name} -n {namespace}` shows all of it."),
    ("NoDefaultStorageClass", "", "Install a provisioner and make its StorageClass the default (the claim then "
     "takes it; a cluster that is made with `nodewright up --storage` has one), or create a PersistentVolume and write "
     "the same storageClassName in both; `kubectl get storageclass,pv` lists what exists."),
    ("NoStorageClass", "", "Create the StorageClass with its provisioner, or name another one in the claim "
     "(`kubectl get storageclass` lists what exists). A claim's class cannot be changed later: delete it and create "
     "it again."),
    ("NoVolumeFits", "", "Create a PersistentVolume with the claim's class, access mode and at least its size; "
     "`kubectl get pv` lists what exists."),
    ("NodeResizeError", "", "Its pods go on with the size that it has. Mend what the message names; the node tries "
     "again by itself. `kubectl describe pvc {name} -n {namespace}` shows both sizes."),
    ("ControllerResizeError", "", "Its pods go on with the size that it has. Ask for one that its driver can give: "
     "`kubectl edit pvc {name} -n {namespace}`."),
    ("ProvisioningFailed", r"code = ResourceExhausted desc = .*left on this node for volumes", "Ask for less, delete "
     "claims and VolumeSnapshots that nobody needs (`kubectl get pvc,volumesnapshots -A`), or make room on the node's "
     "disk; `kubectl get csistoragecapacities -n kube-system` shows how much each node has left."),
    ("ProvisioningFailed", r"code = InvalidArgument desc = ", "Correct what the message names. Most of a claim cannot "
     "be changed: delete it (`kubectl delete pvc {name} -n {namespace}`) and create it again."),
    ("ProvisioningFailed", "", "Look at the log of the provisioner; `kubectl describe pvc {name} -n {namespace}` "
     "shows what it said."),
    ("WaitForPodScheduled", r"for pod (?P<pod>\S+)", "Look why the pod has no node: `nodewright why "
     "{namespace}/{pod}`."),
    ("WaitForPodScheduled", "", "Take nodeName out of the pod and let the scheduler choose: nodeSelector with "
     "kubernetes.io/hostname has the same effect."),
    ("Provisioning", r"csi\.nodewright\.local", "Its driver and its provisioner are daemons of the node of its pod "
     "(`kubectl get pods -n {namespace} -o wide`): `nodewright status` shows whether they run, `nodewright export "
     "logs` has csi.log and csi-provisioner.log."),
    ("Provisioning", "", "Check that its provisioner runs: `kubectl get pods -A` and `kubectl get csidrivers`."),
    ("Lost", "", "Its data may be gone: bring the PersistentVolume back, or delete the claim and create it again: "
     "`kubectl delete pvc {name} -n {namespace}`."),
    ("InUse", "", "Delete the pods that use it; then it goes by itself."),
    ("Finalizers", "", "Wait until the controllers that own these finalizers remove them. If they are gone, remove "
     "the finalizers by hand: `kubectl edit {kind} {name} -n {namespace}`."),
    ("NoIngressController", "", "Install one: `nodewright addons add ingress` adds Traefik to this cluster (built "
     "first, once, which takes some minutes); then set spec.ingressClassName to traefik."),
    ("NoIngressClass", "", "Set spec.ingressClassName to a class that exists (`kubectl get ingressclass`): `kubectl "
     "edit ingress {name} -n {namespace}`."),
    ("NoBackend", r'Service "(?P<service>[^"]+)"', "Create the Service {service} or correct the backend's name: "
     "`kubectl get services -n {namespace}` lists what exists."),
    ("NotRegistered", "", "Let it register again: `nodewright up` mends the cluster; or restart its agent, which "
     "registers when it starts."),
    ("NodeStatusUnknown", "", "Its agent or its machine does not report: see `nodewright status`, and mend it with "
     "`nodewright up`."),
    ("Cordoned", "", "If that is over: `kubectl uncordon {name}`."),
    ("KubeletNotReady", "", "Mend what the message names; `kubectl describe node {name}` shows all of its "
     "conditions."),
    ("KubeletHasInsufficientMemory KubeletHasDiskPressure KubeletHasInsufficientPID", "", "Free some of it on the "
     "node: until then it takes no new pods and evicts some."),
)  # fmt: skip
_COMPILED = tuple(rule(*one) for one in _RULES)


def remedy(reason: str, message: str, kind: str, obj: Json) -> str:
    """The advice; "" when there is nothing to add to the message."""
    words = {"kind": kind, "name": obj["metadata"]["name"], "namespace": namespace_of(obj)}
    return advised(_COMPILED, reason, message, {**words, "resume": '{"spec":{"suspend":false}}'})
