#!/usr/bin/env bash
# What deb-upgrade.sh does in its machine. The folder that it shares is mounted at /mnt/shared.
#
#   deb-node.sh raise          kubeadm's cluster on the package old.deb, and pods
#   deb-node.sh replace NAME   NAME.deb takes its place while deb_witness.py looks on
#   deb-node.sh remove         what is left of the package when it is removed, and when it is purged
set -euo pipefail

shared=/mnt/shared
notes=/var/tmp/deb-upgrade
export KUBECONFIG=/etc/kubernetes/admin.conf

raise() {
  mkdir -p "$notes" /opt/nodewright/payload
  cp -a "$shared/project" /opt/nodewright/
  mount --bind "$shared/payload" /opt/nodewright/payload
  ip route replace default via 192.168.78.1 # it leads nowhere; kubeadm and CoreDNS want one
  echo 'nameserver 192.168.78.1' >/etc/resolv.conf
  all_files >"$notes/before"
  NODE_NAME=uml NODE_IP=192.168.78.2 TOKEN=0123ab.0123456789abcdef PACKAGE=$shared/old.deb \
    bash /opt/nodewright/project/vagrant/provision/control-plane.sh
  manifests | kubectl apply -f -
  kubectl wait --for=condition=Ready node --all --timeout=300s
  kubectl rollout status deployment/web --timeout=300s
  kubectl wait --for=condition=Ready pod --all --timeout=300s
  kubectl get pods -A -o wide
  systemctl status --no-pager --lines=0 kubelet nodewright-proxy
  systemd-analyze security --no-pager kubelet nodewright-proxy | tail -n 4
  for unit in kubelet nodewright-proxy; do systemd-analyze security --no-pager "$unit" | tail -n 1; done
}

replace() {
  kubectl delete pod -l app=born --wait=true >/dev/null
  local status=0
  python3 "$(dirname -- "${BASH_SOURCE[0]}")/deb_witness.py" dpkg -i "$shared/$1.deb" || status=$?
  systemctl status --no-pager --lines=0 kubelet | head -n 4
  journalctl -q --no-pager -o short-precise -u kubelet -p warning --since=-120 | tail -n 20
  return $status
}

remove() {
  local before status=0
  before=$(running)
  dpkg -r nodewright
  echo "containers that run: $before before, $(running) after"
  echo "left by the removal:" && left
  dpkg -P nodewright
  echo "left by the purge, and not of kubeadm, the pods or this script:" && left
  left | grep -q . && status=1
  systemctl list-units --all --no-legend 'kubelet*' 'nodewright*' | grep . && status=1
  return $status
}

running() { ctr -n k8s.io task ls -q | wc -l; }

all_files() {
  find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /mnt \
    -o -path /opt/nodewright -o -path /var/lib/containerd \) -prune -o -print | LC_ALL=C sort
}

# New since `raise` began, and not of others: kubeadm's, containerd's and what provision/common.sh writes.
left() {
  all_files | LC_ALL=C comm -13 "$notes/before" - | grep -Ev \
    '^/(usr/local/bin/|etc/containerd|etc/cni$|etc/systemd/system/(multi-user.target.wants/)?containerd|etc/kubernetes|var/lib/(kubelet|etcd|dpkg|systemd)|etc/default/kubelet|opt/(cni|containerd)$|opt/(cni/bin|containerd/(bin|lib))$|etc/modules-load.d/conntrack.conf|home/vagrant/.kube|root/)' ||
    true
}

manifests() {
  cat <<'END'
apiVersion: v1
kind: Pod
metadata: {name: echo}
spec:
  containers:
  - name: c
    image: registry.k8s.io/e2e-test-images/busybox:1.37.0-2
    command: [sh, -c, "while true; do nc -l -p 7000 -e cat; done"]
---
apiVersion: v1
kind: Pod
metadata: {name: counter}
spec:
  containers:
  - name: c
    image: registry.k8s.io/e2e-test-images/busybox:1.37.0-2
    command: [sh, -c, "n=0; while true; do n=$((n+1)); echo $n >/data/count; sleep 0.1; done"]
    livenessProbe: {exec: {command: [test, -s, /data/count]}, periodSeconds: 2}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: c
        image: registry.k8s.io/e2e-test-images/busybox:1.37.0-2
        command: [sh, -c, "hostname >/tmp/hostname; exec httpd -f -p 8080 -h /tmp"]
        readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1, failureThreshold: 2}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
END
}

"$@"
