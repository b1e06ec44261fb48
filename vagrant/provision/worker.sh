#!/usr/bin/env bash
# A worker: nodewright's agent, pod network and proxy, joined with a token. Run again, it goes on where it stopped.
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
. "$here/common.sh"

main() {
  prepare "$payload"/images/node-*.tar
  by_kubeadm join
  start_proxy
  step "$NODE_NAME is a node"
}

# The token authenticates the cluster's address and authority (their signature is made with it); the VMs' own network
# has nobody else on it, so the authority is not pinned beforehand.
configuration() {
  cat <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {apiServerEndpoint: "$CONTROL_PLANE_IP:6443", token: $TOKEN, unsafeSkipCAVerification: true}
nodeRegistration: {name: $NODE_NAME, criSocket: "unix:///run/containerd/containerd.sock"}
timeouts: {discovery: 60m0s, tlsBootstrap: 15m0s, kubeletHealthCheck: 15m0s, kubernetesAPICall: 10m0s}
END
}

main
