#!/usr/bin/env bash
# Process 1 of machine.sh's namespaces: mounts, then dockerd until it is told to end.
#   machine_init.sh STATE install|run
set -euo pipefail

state=$1
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")

main() {
  case $2 in
    install) layers ""; install ;;
    run) layers fresh; run ;;
  esac
}

# What was installed is kept; what a run changes is above it, and gone with the next.
layers() {
  local name kept upper lower
  rm -rf --one-file-system "$state/fresh" "$state/containerd" "$state/kubelet"
  for name in usr etc opt var; do
    kept=$state/layers/$name upper=$state/${1:-layers}/$name lower=/$name
    [[ -z $1 ]] || lower=$kept/upper:/$name
    mkdir -p "$upper"/{upper,work}
    mount -t overlay -o "lowerdir=$lower,upperdir=$upper/upper,workdir=$upper/work" overlay "/$name"
  done
}

install() {
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # no daemon is started by its package
  chmod 755 /usr/sbin/policy-rc.d
  DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends docker.io
}

run() {
  # Overlays cannot be the upper layer of others: what holds layers itself is a plain folder.
  local name
  for name in docker containerd kubelet; do
    mkdir -p "$state/$name" "/var/lib/$name"
    mount --bind "$state/$name" "/var/lib/$name"
  done
  mount -t tmpfs tmpfs /run
  mkdir -p /run/lock /lib/modules
  sysfs
  mount --make-rshared /
  hostname kind-host
  ip link set lo up
  trap 'ended=1; kill "$daemon" 2>/dev/null' TERM INT
  local runtime=()
  may_raise_limits || runtime=(--oom-score-adjust 0 --add-runtime "limited=$here/runtime.sh" --default-runtime limited)
  dockerd --host unix:///run/docker.sock --storage-driver overlay2 "${runtime[@]}" \
    >"$state/log/dockerd.log" 2>&1 &
  daemon=$!
  ended=
  while [[ -z $ended ]]; do wait "$daemon" || kill -0 "$daemon" 2>/dev/null || break; done
  while kill -0 "$daemon" 2>/dev/null; do wait "$daemon" || true; done
}

# CAP_SYS_RESOURCE (24), which a host that is itself a container may lack.
may_raise_limits() {
  local bounding
  bounding=$(sed -n 's/^CapBnd:\s*//p' /proc/self/status)
  (((0x$bounding >> 24) & 1))
}

# Of this network namespace, with the cgroups as its root sees them.
sysfs() {
  local kinds
  kinds=$(findmnt --list --noheadings --output TARGET,FSTYPE,FS-OPTIONS --types cgroup,cgroup2)
  mount -t sysfs sysfs /sys
  local target type options
  if ! grep -q ' cgroup ' <<<"$kinds"; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    return
  fi
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  while read -r target type options; do
    mkdir -p "$target"
    options=$(tr , '\n' <<<"$options" | grep -vxE 'rw|ro|relatime|xattr|clone_children|release_agent=.*' | paste -sd, || true)
    [[ $options != name=* ]] || options=none,$options
    mount -t "$type" ${options:+-o "$options"} "$type" "$target"
  done <<<"$kinds"
}

main "$@"
