#!/usr/bin/env bash
# Vagrant on a machine with neither systemd nor KVM nor a way out: libvirt and its emulated VMs live in network, mount
# and process namespaces of their own, so that no bridge, rule or daemon of theirs is seen outside.
#
#   vagrant/local/run.sh start            libvirtd in its namespaces, the box and the payload known to it
#   vagrant/local/run.sh vagrant ARGS...  vagrant in there, for the Vagrantfile of this project
#   vagrant/local/run.sh exec ARGS...     any command in there
#   vagrant/local/run.sh stop             ends all of it, VMs too
#
# State is below NODEWRIGHT_VAGRANT_STATE (default: the cache). Needs root; Debian's vagrant, vagrant-libvirt,
# libvirt-daemon-system, libvirt-clients, qemu-system-x86, dnsmasq-base, rsync.
set -euo pipefail

here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
project=$(dirname -- "$(dirname -- "$here")")
cache=${NODEWRIGHT_CACHE:-${HOME:-/root}/.cache/nodewright}
state=${NODEWRIGHT_VAGRANT_STATE:-$cache/vagrant}
pid_file=$state/init.pid

main() {
  local verb=${1:-}
  shift || true
  case $verb in
    start) start ;;
    vagrant) enter_vagrant "$@" ;;
    exec) enter "$@" ;;
    stop) stop ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
}

start() {
  mkdir -p "$state"/{etc,lib,run,log,cache,home}
  "$here/box.sh" "$state/box" >/dev/null
  "$project/nodewright" payload "$state/payload"
  payload_disk
  if ! running; then
    nohup setsid unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private \
      "$here/daemons.sh" "$state" >"$state/log/daemons.log" 2>&1 </dev/null &
    local outer=$!
    for _ in $(seq 1 100); do
      [[ -s /proc/$outer/task/$outer/children ]] && break
      sleep 0.1
    done
    inner=$(<"/proc/$outer/task/$outer/children")
    echo "${inner% }" >"$pid_file"
  fi
  for _ in $(seq 1 300); do
    enter virsh -q -c qemu:///system pool-info default >/dev/null 2>&1 && break
    running || { cat "$state/log/daemons.log" >&2; exit 1; }
    sleep 0.2
  done
  enter virsh -q -c qemu:///system pool-info default >/dev/null
  enter_vagrant box add --force "$state/box/box.json" >/dev/null
}

# The payload as a file system on a disk: it reaches a VM in a second where rsync needs a quarter of a minute. A newer
# project alone is no reason for a new disk: the Vagrantfile brings it.
payload_disk() {
  local disk=$state/lib/images/nodewright-payload.img
  mkdir -p "$state/lib/images"
  [[ -e $disk && -z $(find "$state/payload" -type f ! -name 'project.*' -newer "$disk" -print -quit) ]] && return
  rm -f "$disk"
  local size
  size=$(du -sm "$state/payload" | cut -f1)
  truncate -s "$((size * 12 / 10 + 64))M" "$disk"
  mkfs.ext4 -q -F -L nw-payload -m 0 -d "$state/payload" "$disk"
}

running() { [[ -s $pid_file && -e /proc/$(<"$pid_file")/ns/net ]] && grep -q daemons.sh "/proc/$(<"$pid_file")/cmdline"; }

enter() {
  running || { echo "error: not started: $0 start" >&2; exit 1; }
  nsenter --target "$(<"$pid_file")" --mount --net --pid --wd="$project" "$@"
}

enter_vagrant() {
  enter env VAGRANT_HOME="$state/home" VAGRANT_CHECKPOINT_DISABLE=1 VAGRANT_DEFAULT_PROVIDER=libvirt \
    VAGRANT_DOTFILE_PATH="$state/dot" NODEWRIGHT_BOX=nodewright/debian12 NODEWRIGHT_DRIVER=qemu \
    NODEWRIGHT_PAYLOAD="$state/payload" NODEWRIGHT_PAYLOAD_DISK=nodewright-payload.img vagrant "$@"
}

stop() {
  running || return 0
  kill "$(<"$pid_file")"
  for _ in $(seq 1 200); do
    running || break
    sleep 0.1
  done
  rm -f "$pid_file"
}

main "$@"
