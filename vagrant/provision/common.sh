# Sourced by the provisioning scripts of every VM: what turns a Debian machine into one that can become a node.
# shellcheck shell=bash
set -euo pipefail

base=/opt/nodewright
payload=$base/payload
project=$base/project
POD_CIDR=10.244.0.0/16
SERVICE_CIDR=10.96.0.0/16
step() { printf '%s  %s\n' "$(date +%T)" "$*"; }

# A box of Debian's or Ubuntu's lacks some; one without a way out must bring them.
install_packages() {
  local missing=() name
  for name in python3 iptables nftables conntrack runc containernetworking-plugins socat ethtool; do
    dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
  done
  ((${#missing[@]})) || return 0
  step "Debian packages: ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get -q update >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "${missing[@]}" >/dev/null
}

# The packages come installed, for one minor version of Python: a virtual environment made here would cost minutes on
# an emulated machine.
install_project() {
  step "project"
  local has wants
  has=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  wants=$(cut -d' ' -f1 "$payload/site/python-version")
  [[ $has == "$wants" ]] || { echo "error: this box has Python $has, and the payload is for $wants" >&2; exit 1; }
  install -m 755 -t /usr/local/bin "$payload"/bin/*
  command_of nodewright "NODEWRIGHT_PYTHON=/usr/bin/python3 exec $project/nodewright"
  command_of kubelet "exec python3 -m cli.node_main" # the names that kubeadm and its units call
  command_of kube-proxy "exec python3 -m proxy"
}

command_of() {
  printf '#!/bin/sh\nexport PYTHONPATH=%s:%s\n%s "$@"\n' "$project" "$payload/site" "$2" >"/usr/local/bin/$1"
  chmod 755 "/usr/local/bin/$1"
}

prepare_kernel() {
  printf 'overlay\nbr_netfilter\nnf_conntrack\n' >/etc/modules-load.d/nodewright.conf
  systemctl restart systemd-modules-load
  printf 'net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\n' >/etc/sysctl.d/90-nodewright.conf
  sysctl -q --system
  swapoff -a
  hostnamectl hostname "$NODE_NAME"
  grep -q " $NODE_NAME\$" /etc/hosts || printf '%s %s\n' "$NODE_IP" "$NODE_NAME" >>/etc/hosts
}

# start_containerd IMAGE-ARCHIVE...
start_containerd() {
  step "containerd and images"
  mkdir -p /etc/containerd /etc/cni/net.d /opt/cni/bin
  cp "$here/containerd.toml" /etc/containerd/config.toml
  cp "$here/containerd.service" "$here/kubelet.service" "$here/kube-proxy.service" /etc/systemd/system/
  systemctl daemon-reload
  systemctl -q enable --now containerd
  local image
  for image in "$@"; do
    [[ -e $base/imported/${image##*/} ]] && continue
    ctr -n k8s.io images import --local "$image" >/dev/null
    mkdir -p "$base/imported" && touch "$base/imported/${image##*/}"
  done
  systemctl -q enable kubelet
}

start_proxy() {
  step "service proxy"
  mkdir -p /etc/nodewright
  cat >/etc/nodewright/proxy.yaml <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: $POD_CIDR
hostnameOverride: $NODE_NAME
clientConnection: {kubeconfig: /etc/kubernetes/kubelet.conf}
END
  systemctl -q enable --now kube-proxy
}

# prepare IMAGE-ARCHIVE...
prepare() {
  install_packages
  install_project
  prepare_kernel
  start_containerd "$@"
}
