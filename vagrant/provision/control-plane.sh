#!/usr/bin/env bash
# The control plane: kubeadm init, its pods run by nodewright's agent. Run again, it goes on where it stopped.
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
. "$here/common.sh"

main() {
  prepare "$payload"/images/*.tar
  export KUBECONFIG=/etc/kubernetes/admin.conf
  patient_probes
  by_kubeadm init
  # The pod network needs every node's range. A node's own credentials serve its proxy too: the token is all it needs.
  ensure clusterrole nodewright:pod-network --verb=get,list,watch --resource=nodes
  ensure clusterrolebinding nodewright:pod-network --clusterrole=nodewright:pod-network --group=system:nodes
  ensure clusterrolebinding nodewright:node-proxier --clusterrole=system:node-proxier --group=system:nodes
  start_proxy
  install -d -o vagrant -g vagrant /home/vagrant/.kube
  install -o vagrant -g vagrant -m 600 "$KUBECONFIG" /home/vagrant/.kube/config
  step "the control plane is up"
}

# kubeadm's pods are asked every second whether they are ready, over TLS: half of an emulated machine would go into that,
# and a slow answer to a liveness probe would end an API server that has only just come up.
patient_probes() {
  local name ready
  mkdir -p /etc/kubernetes/patches
  for name in kube-apiserver kube-controller-manager kube-scheduler etcd; do
    ready="readinessProbe: {periodSeconds: 15, timeoutSeconds: 30}, "
    [[ $name == kube-controller-manager ]] && ready="" # it has none
    cat >"/etc/kubernetes/patches/${name}0+strategic.yaml" <<END
spec:
  containers:
  - {name: $name, ${ready}livenessProbe: {periodSeconds: 60, timeoutSeconds: 60, failureThreshold: 10},
     startupProbe: {periodSeconds: 15, timeoutSeconds: 30, failureThreshold: 120}}
END
  done
}

ensure() { kubectl create "$@" --dry-run=client -o yaml | kubectl apply -f -; }

configuration() {
  cat <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: $TOKEN, ttl: 24h0m0s, usages: [signing, authentication]}]
localAPIEndpoint: {advertiseAddress: $NODE_IP, bindPort: 6443}
nodeRegistration:
  name: $NODE_NAME
  criSocket: unix:///run/containerd/containerd.sock
  taints: []
patches: {directory: /etc/kubernetes/patches}
timeouts:
  {controlPlaneComponentHealthCheck: 30m0s, kubeletHealthCheck: 15m0s, kubernetesAPICall: 10m0s, etcdAPICall: 10m0s}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: $(kubeadm version -o short)
networking: {podSubnet: $POD_CIDR, serviceSubnet: $SERVICE_CIDR}
proxy: {disabled: true}
# There is one control plane: an election could only be lost, by a machine that is slow.
controllerManager: {extraArgs: [{name: leader-elect, value: "false"}]}
scheduler: {extraArgs: [{name: leader-elect, value: "false"}]}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
imageGCHighThresholdPercent: 100 # there may be nowhere to pull from again
END
}

main
