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
# an emulated machine. `nodewright install` puts the commands and units where kubeadm looks for a kubelet.
install_project() {
  step "project"
  local has wants
  has=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  wants=$(cut -d' ' -f1 "$payload/site/python-version")
  [[ $has == "$wants" ]] || { echo "error: this box has Python $has, and the payload is for $wants" >&2; exit 1; }
  install -m 755 -t /usr/local/bin "$payload"/bin/*
  NODEWRIGHT_PYTHON=/usr/bin/python3 PYTHONPATH=$payload/site "$project/nodewright" install | grep -v '^written' || true
}

prepare_kernel() {
  printf 'nf_conntrack\n' >/etc/modules-load.d/conntrack.conf
  systemctl restart systemd-modules-load
  swapoff -a
  hostnamectl hostname "$NODE_NAME"
  # A box without a way out may know no server, and CoreDNS does not start without one to forward to.
  grep -qs '^nameserver' /etc/resolv.conf ||
    ip -4 route show default | awk '{ print "nameserver", $3; exit }' >/etc/resolv.conf
  grep -q " $NODE_NAME\$" /etc/hosts || printf '%s %s\n' "$NODE_IP" "$NODE_NAME" >>/etc/hosts
}

# start_containerd IMAGE-ARCHIVE...
start_containerd() {
  step "containerd"
  mkdir -p /etc/containerd /etc/cni/net.d /opt/cni/bin
  cp "$here/containerd.toml" /etc/containerd/config.toml
  cp "$here/containerd.service" /etc/systemd/system/
  systemctl daemon-reload
  systemctl -q enable --now containerd
  local image
  for image in "$@"; do
    [[ -e $base/imported/${image##*/} ]] && continue
    step "images: ${image##*/}"
    ctr -n k8s.io images import --local "$image" >/dev/null
    mkdir -p "$base/imported" && touch "$base/imported/${image##*/}"
  done
}

node_settings() {
  printf 'KUBELET_EXTRA_ARGS=--node-ip=%s --pod-network=nodewright --pod-network-cidr=%s\n' "$NODE_IP" "$POD_CIDR" \
    >/etc/default/kubelet
}

# by_kubeadm init|join: once. What was cut short (a machine that is emulated and busy misses the limits of kubeadm's
# preflight, too) is run again over what it left, which that preflight would refuse.
by_kubeadm() {
  [[ -e $base/$1.done ]] && return
  mkdir -p /etc/kubernetes
  configuration >/etc/kubernetes/kubeadm.yaml
  local over=() tries=0
  until [[ -e $base/$1.done ]]; do
    step "kubeadm $1"
    [[ -e $base/$1.begun ]] && over=(--ignore-preflight-errors=all)
    touch "$base/$1.begun"
    if kubeadm "$1" --config=/etc/kubernetes/kubeadm.yaml "${over[@]}"; then
      touch "$base/$1.done"
    elif ((++tries == 5)); then
      echo "error: kubeadm $1 failed $tries times; see above, then: vagrant provision $NODE_NAME" >&2
      return 1
    fi
  done
}

start_proxy() {
  step "service proxy"
  cat >/etc/kubernetes/nodewright-proxy.yaml <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: $POD_CIDR
hostnameOverride: $NODE_NAME
clientConnection: {kubeconfig: /etc/kubernetes/kubelet.conf}
END
  systemctl -q enable --now nodewright-proxy
}

# prepare IMAGE-ARCHIVE...
prepare() {
  install_packages
  install_project
  prepare_kernel
  start_containerd "$@"
  node_settings
}
