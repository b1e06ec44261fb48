"""The fields of API objects that explanations read, by the plural in the path (k8s.io/api).

An API server that is broken, or something that answers in its place, must not end a command by a number where a list
should be, nor put words of its own into a command that a user copies.
"""

from __future__ import annotations

import re

from nodelib.json_values import Json
from nodelib.shapes import Shape, shaped

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]{0,252}")
_TEXTS = {"*": str}
_PORT = (int, _NAME)
_PROTOCOL = re.compile("TCP|UDP|SCTP")
_OWNER = {"kind": str, "name": _NAME, "uid": str, "controller": bool}
_META = {
    "name!": _NAME,
    "namespace": _NAME,
    "uid!": str,
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "ownerReferences": [_OWNER],
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "deletionGracePeriodSeconds": int,
    "finalizers": [str],
}
_CONDITION = {
    "type!": str,
    "status!": str,
    "reason": str,
    "message": str,
    "lastTransitionTime": str,
    "lastHeartbeatTime": str,
}
_ENDED = {
    "exitCode": int,
    "signal": int,
    "reason": str,
    "message": str,
    "startedAt": str,
    "finishedAt": str,
}
_STATE = {"waiting": {"reason": str, "message": str}, "running": {"startedAt": str}, "terminated": _ENDED}
_BOX_STATUS = {"name!": _NAME, "ready": bool, "restartCount": int, "state": _STATE, "lastState": _STATE}
_BOX = {
    "name": _NAME,
    "ports": [{"name": str, "containerPort!": int, "hostPort": int, "protocol": _PROTOCOL, "hostIP": str}],
}
_POD_SPEC = {
    "nodeName": _NAME,
    "hostNetwork": bool,
    "hostname": str,
    "subdomain": str,
    "schedulerName": str,
    "serviceAccountName": str,
    "nodeSelector": _TEXTS,
    "containers": [_BOX],
    "initContainers": [_BOX],
    "volumes": [{"name": _NAME, "persistentVolumeClaim": {"claimName": _NAME}}],
    "resourceClaims": [{"name": _NAME, "resourceClaimName": _NAME}],
}
_POD_STATUS = {
    "phase": str,
    "reason": str,
    "message": str,
    "podIP": _NAME,
    "podIPs": [{"ip": _NAME}],
    "startTime": str,
    "conditions": [_CONDITION],
    "containerStatuses": [_BOX_STATUS],
    "initContainerStatuses": [_BOX_STATUS],
}
_LABEL_SELECTOR = {
    "matchLabels": _TEXTS,
    "matchExpressions": [{"key!": str, "operator!": str, "values": [str]}],
}
_WORKLOAD_SPEC = {
    "replicas": int,
    "paused": bool,
    "suspend": bool,
    "completions": int,
    "parallelism": int,
    "schedule": str,
    "selector": _LABEL_SELECTOR,
    "template": {"spec": _POD_SPEC},
}
_WORKLOAD_STATUS = {
    "replicas": int,
    "readyReplicas": int,
    "updatedReplicas": int,
    "unavailableReplicas": int,
    "desiredNumberScheduled": int,
    "numberReady": int,
    "succeeded": int,
    "failed": int,
    "ready": int,
    "lastScheduleTime": str,
    "active": ([_OWNER], int),
    "conditions": [_CONDITION],
}
_WORKLOAD = {"spec": _WORKLOAD_SPEC, "status": _WORKLOAD_STATUS}
_BALANCER = {"loadBalancer": {"ingress": [{"ip": _NAME, "hostname": _NAME}]}}
_SERVICE = {
    "spec": {
        "type": str,
        "clusterIP": _NAME,
        "clusterIPs": [_NAME],
        "externalIPs": [_NAME],
        "externalName": str,
        "ipFamilies": [re.compile("IPv4|IPv6")],
        "selector": _TEXTS,
        "sessionAffinity": str,
        "internalTrafficPolicy": str,
        "externalTrafficPolicy": str,
        "trafficDistribution": str,
        "loadBalancerClass": str,
        "publishNotReadyAddresses": bool,
        "ports": [{"name": str, "port!": int, "protocol": _PROTOCOL, "nodePort": int, "targetPort": _PORT}],
    },
    "status": _BALANCER,
}
_SLICE = {
    "addressType": str,
    "ports": [{"name": str, "port": int, "protocol": _PROTOCOL}],
    "endpoints": [
        {
            "addresses!": [_NAME],
            "hostname": str,
            "nodeName": _NAME,
            "zone": str,
            "conditions": {"ready": bool, "serving": bool, "terminating": bool},
            "targetRef": {"kind": str, "name": _NAME, "namespace": _NAME, "uid": str},
        }
    ],
}
_BACKEND = {"service": {"name": _NAME, "port": {"number": int, "name": str}}}
_INGRESS = {
    "spec": {
        "ingressClassName": _NAME,
        "defaultBackend": _BACKEND,
        "rules": [{"host": str, "http": {"paths": [{"backend": _BACKEND}]}}],
    },
    "status": _BALANCER,
}
_NODE = {
    "spec": {
        "podCIDR": str,
        "podCIDRs": [str],
        "unschedulable": bool,
        "taints": [{"key!": str, "effect": str, "value": str}],
    },
    "status": {
        "conditions": [_CONDITION],
        "addresses": [{"type": str, "address!": _NAME}],
        "nodeInfo": {"kubeletVersion": str, "containerRuntimeVersion": str},
    },
}
_EVENT = {
    "type": str,
    "reason": str,
    "message": str,
    "count": int,
    "firstTimestamp": str,
    "lastTimestamp": str,
    "eventTime": str,
    "series": {"count": int, "lastObservedTime": str},
    "involvedObject": {"uid": str, "kind": str, "name": str, "namespace": str, "fieldPath": str},
}
_CLAIM = {"spec": {"storageClassName": str, "volumeName": str}, "status": {"phase": str, "conditions": [_CONDITION]}}
_POLICY = {"spec": {"podSelector": _LABEL_SELECTOR, "policyTypes": [str], "ingress": [dict], "egress": [dict]}}
_BY_PLURAL: dict[str, Shape] = {
    "pods": {"spec": _POD_SPEC, "status": _POD_STATUS},
    **dict.fromkeys(("deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs"), _WORKLOAD),
    "services": _SERVICE,
    "endpointslices": _SLICE,
    "ingresses": _INGRESS,
    "nodes": _NODE,
    "events": _EVENT,
    "persistentvolumeclaims": _CLAIM,
    "storageclasses": {"provisioner": str, "volumeBindingMode": str},
    "networkpolicies": _POLICY,
    "leases": {"spec": {"holderIdentity": str, "renewTime": str}},
}
# An object has both in what is read of it, empty where it has none.
_HAVE_BOTH = frozenset(_BY_PLURAL) - {"events", "endpointslices", "storageclasses"}


def objects(path: str, items: object) -> list[Json]:
    """The objects of a list, each as far as it is what `path` lists; what has no usable name is left out."""
    plural = path.rpartition("/")[2]
    shape = [{"metadata!": _META, **_BY_PLURAL.get(plural, {"spec": dict, "status": dict})}]
    found: list[Json] = shaped(items, shape) or []
    return [_whole(one) for one in found] if plural in _HAVE_BOTH else found


def _whole(found: Json) -> Json:
    return {"spec": {}, "status": {}, **found}
