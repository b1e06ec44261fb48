"""A pod network like kind's: a privileged DaemonSet in the host's network that writes CNI configuration and routes.

Plugins, configuration and routes are the same as kindnetd's; the program is a script here. Pure.
"""

from __future__ import annotations

from controlplane.images.plan.kubeadm_recipes import KINDNET_NAME
from nodelib.json_values import Json

_RBAC = "rbac.authorization.k8s.io"
_SCRIPT = r"""
set -eu
cp -f /usr/lib/cni/ptp /usr/lib/cni/host-local /usr/lib/cni/portmap /usr/lib/cni/loopback /opt/cni/bin/
conf=/etc/cni/net.d/10-kindnet.conflist
query='{range .items[*]}{.metadata.name}{" "}{.spec.podCIDR}{" "}'
query="$query"'{.status.addresses[?(@.type=="InternalIP")].address}{"\n"}{end}'
while :; do
  if timeout 5 kubectl get nodes -o "jsonpath=$query" >/tmp/nodes; then
    while read -r name cidr address; do
      [ -n "$address" ] || continue
      if [ "$name" != "$NODE_NAME" ]; then
        ip route replace "$cidr" via "$address"
        continue
      fi
      ipam='{"type":"host-local","dataDir":"/run/cni-ipam-state","routes":[{"dst":"0.0.0.0/0"}],'
      ipam="$ipam\"ranges\":[[{\"subnet\":\"$cidr\"}]]}"
      plugins="{\"type\":\"ptp\",\"ipMasq\":false,\"mtu\":1500,\"ipam\":$ipam}"
      plugins="$plugins,{\"type\":\"portmap\",\"capabilities\":{\"portMappings\":true}}"
      text="{\"cniVersion\":\"0.3.1\",\"name\":\"kindnet\",\"plugins\":[$plugins]}"
      if [ "$(cat $conf 2>/dev/null)" != "$text" ]; then
        printf %s "$text" >$conf.new
        mv $conf.new $conf
      fi
    done </tmp/nodes
  fi
  sleep 2
done
"""


def objects() -> list[Json]:
    """The account, its rights and the DaemonSet."""
    labels = {"app": "kindnet"}
    mounts = {"cni-cfg": "/etc/cni/net.d", "cni-bin": "/opt/cni/bin"}
    container = {
        "name": "kindnet-cni",
        "image": KINDNET_NAME,
        "command": ["/bin/bash", "-c", _SCRIPT],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    spec = {
        "hostNetwork": True,
        "serviceAccountName": "kindnet",
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [
            {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for name, path in mounts.items()
        ],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kindnet", "namespace": "kube-system"}},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "kindnet"},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch", "get"]}],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "kindnet"},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "kindnet"},
            "subjects": [{"kind": "ServiceAccount", "name": "kindnet", "namespace": "kube-system"}],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "kindnet", "namespace": "kube-system", "labels": labels},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    ]
