#!/usr/bin/env bash
# The first process of run.sh's namespaces: mounts, then virtlogd and libvirtd until it is told to end.
set -euo pipefail

state=$1
for pair in etc:/etc/libvirt lib:/var/lib/libvirt run:/run/libvirt log:/var/log/libvirt cache:/var/cache/libvirt; do
  mkdir -p "$state/${pair%%:*}" "${pair#*:}"
  mount --bind "$state/${pair%%:*}" "${pair#*:}"
done
# libvirt looks for bridges in /sys/class/net: it must be the one of this network namespace.
cgroups=$(mktemp -d)
mount --rbind /sys/fs/cgroup "$cgroups"
mount -t sysfs sysfs /sys
mount --rbind "$cgroups" /sys/fs/cgroup
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward

cat >/etc/libvirt/qemu.conf <<'END'
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
cgroup_controllers = [ ]
namespaces = [ ]
stdio_handler = "logd"
END
: >/etc/libvirt/libvirtd.conf
rm -f /run/libvirt/*.pid /run/libvirt/*-sock*

/usr/sbin/virtlogd --pid-file /run/libvirt/virtlogd.pid &
/usr/sbin/libvirtd --pid-file /run/libvirt/libvirtd.pid &
daemon=$!
trap 'exit 0' TERM INT

for _ in $(seq 1 300); do
  virsh -q -c qemu:///system list >/dev/null 2>&1 && break
  kill -0 $daemon
  sleep 0.2
done
if ! virsh -q -c qemu:///system pool-info default >/dev/null 2>&1; then
  mkdir -p /var/lib/libvirt/images
  virsh -q -c qemu:///system pool-define-as default dir --target /var/lib/libvirt/images
fi
virsh -q -c qemu:///system pool-start default 2>/dev/null || true
virsh -q -c qemu:///system pool-refresh default
wait $daemon
