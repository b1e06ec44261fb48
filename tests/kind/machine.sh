#!/usr/bin/env bash
# A Docker host for kind on a machine that has none, or whose rules and daemons are not to be touched: network, mount,
# process and cgroup namespaces of its own, whose changes to /usr, /etc, /opt and /var are in a folder beside them.
#
#   tests/kind/machine.sh start            Debian's docker.io in it (installed there only), dockerd running
#   tests/kind/machine.sh exec ARGS...     any command in it: docker, kind, ./nodewright join
#   tests/kind/machine.sh stop             ends everything in it; Docker and its images stay for the next start
#   tests/kind/machine.sh purge            and removes its folder
#
# State is in NODEWRIGHT_KIND_STATE (default: the cache). It has no way out: images are made here. Needs root.
set -euo pipefail

here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
project=$(dirname -- "$(dirname -- "$here")")
state=${NODEWRIGHT_KIND_STATE:-${NODEWRIGHT_CACHE:-${HOME:-/root}/.cache/nodewright}/kind}
pid_file=$state/init.pid
cgroup=/nodewright-kind
# The systemd of a kind node writes these, which are the kernel's, not its own.
shared_sysctls=(fs.file-max fs.nr_open fs.protected_fifos fs.protected_hardlinks fs.protected_regular fs.protected_symlinks)

main() {
  local verb=${1:-}
  shift || true
  case $verb in
    start) start ;;
    exec) enter "$@" ;;
    stop) stop ;;
    purge) stop; rm -rf --one-file-system "$state" ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
}

start() {
  mkdir -p "$state/log"
  running && return
  [[ -x $state/layers/usr/upper/sbin/dockerd ]] ||
    unshare --mount --propagation private "$here/machine_init.sh" "$state" install >"$state/log/install.log" 2>&1
  sysctl "${shared_sysctls[@]}" >"$state/sysctl.conf"
  # In a child, as it moves itself: what this shell starts later stays where it was.
  (
    join_cgroups
    exec setsid unshare --mount --net --uts --ipc --cgroup --pid --fork --kill-child --mount-proc --propagation private \
      "$here/machine_init.sh" "$state" run
  ) >"$state/log/machine.log" 2>&1 </dev/null &
  local outer=$! inner=
  for _ in $(seq 1 100); do
    read -r inner <"/proc/$outer/task/$outer/children" 2>/dev/null && [[ -n $inner ]] && break
    sleep 0.1
  done
  echo "${inner%% *}" >"$pid_file"
  for _ in $(seq 1 150); do
    enter docker version >/dev/null 2>&1 && return
    running || break
    sleep 0.2
  done
  tail -n 20 "$state/log/machine.log" "$state/log/dockerd.log" >&2
  exit 1
}

# The root of its cgroup namespace, in every hierarchy.
join_cgroups() {
  local mounted name
  while read -r mounted; do
    mkdir -p "$mounted$cgroup"
    for name in cpuset.cpus cpuset.mems; do # a new v1 cpuset is empty, and nothing could run in it
      [[ -e $mounted/cgroup.controllers || ! -e $mounted/$name ]] || cat "$mounted/$name" >"$mounted$cgroup/$name"
    done
    echo "$BASHPID" >"$mounted$cgroup/cgroup.procs"
  done < <(cgroup_mounts)
}

cgroup_mounts() { findmnt --list --noheadings --output TARGET --types cgroup,cgroup2; }

running() { [[ -s $pid_file && -e /proc/$(<"$pid_file")/ns/net ]] && grep -q machine_init.sh "/proc/$(<"$pid_file")/cmdline"; }

enter() {
  running || { echo "error: not started: $0 start" >&2; exit 1; }
  (
    join_cgroups
    exec nsenter --target "$(<"$pid_file")" --mount --net --uts --ipc --cgroup --pid --wd="$PWD" "$@"
  )
}

stop() {
  if running; then
    kill "$(<"$pid_file")"
    for _ in $(seq 1 300); do
      running || break
      sleep 0.1
    done
  fi
  rm -f "$pid_file"
  [[ ! -e $state/sysctl.conf ]] || sysctl -q -p "$state/sysctl.conf"
  rm -f "$state/sysctl.conf"
  local mounted
  while read -r mounted; do
    [[ ! -d $mounted$cgroup ]] || find "$mounted$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done < <(cgroup_mounts)
}

main "$@"
