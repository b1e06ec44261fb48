#!/usr/bin/env bash
# What deb-upgrade.sh does in its machine. The folder that both share is mounted at /mnt/shared.
#
#   deb-node.sh install        containerd, old.deb, and its kubelet and proxy started by systemctl
#   deb-node.sh replace NAME   NAME.deb takes its place while deb_witness.py looks on
#   deb-node.sh remove         what is left of the package when it is removed, and when it is purged
set -euo pipefail

shared=/mnt/shared
notes=/var/tmp/deb-upgrade
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
units=(kubelet.service nodewright-proxy.service)

install() {
  # That kernel has legacy tables only, which the nft tools do not notice until they write.
  iptables-legacy -t mangle -N KUBE-IPTABLES-HINT
  ip6tables-legacy -t mangle -N KUBE-IPTABLES-HINT
  hostname uml && echo "127.0.1.1 uml" >>/etc/hosts
  ip route replace default via 192.168.78.1 # it leads nowhere; without one no Service's address is reached from here
  containerd
  mkdir -p "$notes" /etc/kubernetes/manifests /var/lib/kubelet
  all_files >"$notes/before"
  dpkg -i "$shared/old.deb"
  cp "$shared/kubeconfig" /etc/kubernetes/kubelet.conf
  cat >/var/lib/kubelet/config.yaml <<'END'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
imageGCHighThresholdPercent: 100
staticPodPath: /etc/kubernetes/manifests
END
  echo 'KUBELET_EXTRA_ARGS=--hostname-override=uml --node-ip=192.168.78.2 --pod-network=nodewright --pod-network-cidr=10.244.0.0/16' \
    >/etc/default/kubelet
  cat >/etc/kubernetes/nodewright-proxy.yaml <<'END'
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: 10.244.0.0/16
hostnameOverride: uml
clientConnection: {kubeconfig: /etc/kubernetes/kubelet.conf}
END
  systemctl start "${units[@]}"
  systemctl status --no-pager --lines=0 "${units[@]}"
  local unit
  for unit in "${units[@]}"; do systemd-analyze security --no-pager "$unit" | tail -n 1; done
}

containerd() {
  local cache=/opt/suite/cache name
  for name in containerd containerd-shim-runc-v2 ctr; do ln -sf $cache/bin/cluster-*/$name /usr/local/bin/; done
  mkdir -p /etc/containerd /etc/cni/net.d /opt/cni/bin
  cp "$here/../provision/containerd.toml" /etc/containerd/config.toml
  cp "$here/../provision/containerd.service" /etc/systemd/system/
  systemctl daemon-reload
  systemctl start containerd
  for name in pause-3.10.2 busybox-1.37.0-2; do
    ctr -n k8s.io images import --local $cache/images/$name-*/image.tar >/dev/null
  done
}

replace() {
  local status=0 until=$((SECONDS + 300))
  # Those of the pods of deb-pods.yaml, each with its sandbox. What the last run made is just ending.
  until (($(running) <= 6 || SECONDS > until)); do sleep 2; done
  python3 "$here/deb_witness.py" "$shared/kubeconfig" dpkg -i "$shared/$1.deb" || status=$?
  systemctl status --no-pager --lines=0 kubelet | head -n 12
  return $status
}

remove() {
  local before status=0
  before=$(running)
  dpkg -r nodewright
  echo "containers that run: $before before the removal, $(running) after it"
  echo "left by the removal:" && left
  dpkg -P nodewright
  echo "left by the purge:" && left
  systemctl list-units --all --no-legend 'kubelet*' 'nodewright*' | grep -v not-found && status=1
  return $status
}

running() { ctr -n k8s.io task ls -q | wc -l; }

all_files() {
  find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /mnt \
    -o -path /var/lib/containerd -o -path /var/lib/kubelet/pods \) -prune -o -print | LC_ALL=C sort
}

# New since before the installation, without dpkg's own and what `install` wrote.
left() {
  all_files | LC_ALL=C comm -13 "$notes/before" - |
    grep -Ev '^/(var/lib/(dpkg|systemd)/|etc/default/kubelet|etc/kubernetes/(kubelet.conf|nodewright-proxy.yaml)|var/lib/kubelet/config.yaml)' || true
}

"$@"
