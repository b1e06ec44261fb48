#!/usr/bin/env bash
# Upstream's e2e_node suite where there is cgroup v2 and no other: Debian 12 under systemd in User-mode Linux, a kernel
# that is a process of this machine. For specs that skip themselves on cgroup v1, such as those of MemoryQoS, where
# there is no KVM: programs run about as fast as here, in an emulated VM (qemu) ten times slower.
#
#   vagrant/local/node-suite.sh start            the VM, with what the suite needs; builds what is missing
#   vagrant/local/node-suite.sh run OPTION...    `nodewright conformance --suite node OPTION...` in it, of what is committed
#   vagrant/local/node-suite.sh exec COMMAND...  a command line, as root in the VM
#   vagrant/local/node-suite.sh stop             ends the VM and removes its disk
#
#   vagrant/local/node-suite.sh run --procs 1 --focus MemoryQoS --results /root/ours
#   vagrant/local/node-suite.sh run --procs 1 --focus MemoryQoS --results /root/upstream --agent upstream
#
# That kernel has one CPU, and no cpuset, no huge pages, no nftables, no PSI. State is below NODEWRIGHT_SUITE_STATE
# (default: in the cache); `stop` keeps the image of Debian. It runs on one CPU, NODEWRIGHT_SUITE_CPU (default: the
# last): another VM at the same time should have another. Needs root; Debian's user-mode-linux, qemu-utils,
# openssh-client, iproute2 beside what box.sh needs; 12 GB of disk, and of memory what the VM uses (at most 5 GB).
set -euo pipefail

here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
project=$(dirname -- "$(dirname -- "$here")")
export NODEWRIGHT_CACHE=${NODEWRIGHT_CACHE:-${HOME:-/root}/.cache/nodewright}
state=${NODEWRIGHT_SUITE_STATE:-$NODEWRIGHT_CACHE/node-suite-vm}
patience=300 # seconds to boot
pid_file=$state/linux.pid
# The network namespace with the only machine that the VM can reach: this one. Another VM needs another, and its own state.
space=${NODEWRIGHT_SUITE_SPACE:-nodewright-suite-vm}
address=192.168.78.2
cpu=${NODEWRIGHT_SUITE_CPU:-$(($(nproc) - 1))} # the CPU that it runs on
there=/opt/suite # in the VM

main() {
  local verb=${1:-}
  shift || true
  case $verb in
    start) start ;;
    run) run "$@" ;;
    exec) in_vm "$*" ;;
    stop) stop ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
}

start() {
  running && { echo "it runs already" >&2; return; }
  mkdir -p "$state"
  [[ -e $state/key ]] || ssh-keygen -q -t ed25519 -N '' -C nodewright-node-suite -f "$state/key"
  NODEWRIGHT_BOX_KEY=$state/key.pub "$here/box.sh" "$state/box" >/dev/null
  needed >"$state/files"
  disk
  ip netns add "$space" 2>/dev/null || true
  ip -n "$space" tuntap add vm mode tap 2>/dev/null || true
  ip -n "$space" address replace "${address%.*}.1/24" dev vm
  ip -n "$space" link set vm up
  # Its memory is a file: in /dev/shm, which is not limited to what a small /tmp has. Its one CPU is one of these: it
  # changes between its processes all the time, and from one CPU to another that is four times as much work.
  TMPDIR=/dev/shm ip netns exec "$space" taskset -c "$cpu" setsid linux.uml mem=5G "ubd0=$state/disk.raw" root=/dev/ubda1 rw \
    vec0:transport=tap,ifname=vm,depth=128 con=null con0=null,fd:1 ssl=null >"$state/console" 2>&1 </dev/null &
  echo $! >"$pid_file"
  local began=$SECONDS
  until in_vm true 2>/dev/null; do
    running && ((SECONDS < began + patience)) || { echo "error: the VM does not answer: $state/console" >&2; exit 1; }
    sleep 1
  done
  in_vm "uname -sr; stat -fc %T /sys/fs/cgroup; cat /sys/fs/cgroup/cgroup.controllers; df -m / | tail -n 1"
}

# What the suite needs, as names below the cache.
needed() {
  "$project/nodewright" --version >/dev/null # makes the Python environment
  PYTHONPATH=$project "$(environment)/bin/python" - "$NODEWRIGHT_CACHE" <<'PYTHON'
import sys
from pathlib import Path

from controlplane.binaries.work import ensure
from controlplane.images.plan.known import NODE_SUITE
from controlplane.images.work import binaries_for, ensure_images
from controlplane.suites.work.node_suite import BINARIES


def say(line):
    print(line, file=sys.stderr)


cache = Path(sys.argv[1]).resolve()
names = dict.fromkeys((*BINARIES, "kubelet", *binaries_for(NODE_SUITE)))
built = ensure(names, cache_dir=cache, progress=say)
images = ensure_images(NODE_SUITE, cache_dir=cache, binaries=built, progress=say)
programs = [built.path(name) for name in names]  # some are links
files = {*programs, *(one.resolve() for one in programs), *images.values()}
print(*sorted(str(one.relative_to(cache)) for one in files), sep="\n")
PYTHON
}

environment() { dirname "$(ls -td "$NODEWRIGHT_CACHE"/venv/*/.complete | head -n 1)"; }

# The box's, with this kernel's modules, an address, and the files with their times, by which the cache knows them.
disk() {
  local root=$state/root
  tar -C "$state" -xf "$(ls -t "$state"/box/debian12-*.box | head -n 1)" box.img
  qemu-img convert -O raw "$state/box.img" "$state/disk.raw"
  rm "$state/box.img"
  mkdir -p "$root"
  mount -o loop,offset=1048576 "$state/disk.raw" "$root"
  trap "umount -q '$root'" EXIT
  mkdir -p "$root/lib/modules" "$root$there/cache"
  cp -a /usr/lib/uml/modules/. "$root/lib/modules/"
  echo '/dev/ubda1 / ext4 defaults,noatime 0 1' >"$root/etc/fstab"
  printf '[Match]\nName=vec0\n[Network]\nAddress=%s/24\n' "$address" >"$root/etc/systemd/network/20-vec0.network"
  printf '%s\n' overlay br_netfilter iptable_{nat,filter,mangle} ip6table_{nat,filter,mangle} >"$root/etc/modules-load.d/uml.conf"
  ln -sf /usr/sbin/iptables-legacy "$root/etc/alternatives/iptables"
  ln -sf /usr/sbin/ip6tables-legacy "$root/etc/alternatives/ip6tables"
  for word in save restore; do
    ln -sf "/usr/sbin/iptables-legacy-$word" "$root/etc/alternatives/iptables-$word"
    ln -sf "/usr/sbin/ip6tables-legacy-$word" "$root/etc/alternatives/ip6tables-$word"
  done
  chroot "$root" python3 -m venv --without-pip "$there/venv"
  cp -a "$(environment)"/lib/python3*/site-packages/. "$root$there"/venv/lib/python3*/site-packages/
  rsync -a --files-from="$state/files" "$NODEWRIGHT_CACHE/" "$root$there/cache/"
  own_requirements "$root"
  clock_speed "$root"
  umount "$root"
  trap - EXIT
}

# The suite refuses a machine without cpusets. It gets requirements without them: a script of its name adds the flag.
own_requirements() {
  local suite
  suite=$there/cache/$(grep '/e2e_node\.test$' "$state/files")
  printf "os: Linux\nkernelSpec: {versions: ['^6\\\\.']}\ncgroups: [cpu, io, memory, pids]\n" >"$1$there/system.yaml"
  mv "$1$suite" "$1${suite%.test}.real"
  printf '#!/bin/bash\nexec -a "$0" %s --system-spec-file=%s "$@"\n' "${suite%.test}.real" "$there/system.yaml" >"$1$suite"
  chmod +x "$1$suite"
}

# Upstream's kubelet does not start on a machine whose /proc/cpuinfo names no clock speed: a script of its name adds one.
clock_speed() {
  local kubelet
  kubelet=$there/cache/$(grep '/kubelet$' "$state/files")
  mkdir "$1${kubelet%/*}/real"
  mv "$1$kubelet" "$1${kubelet%/*}/real/"
  cat >"$1$kubelet" <<END
#!/bin/bash
grep -q '^cpu MHz' /proc/cpuinfo || {
  { cat /proc/cpuinfo; printf 'cpu MHz\t\t: 2000.000\n'; } >/run/cpuinfo
  mount --bind /run/cpuinfo /proc/cpuinfo
}
exec -a "\$0" ${kubelet%/*}/real/kubelet "\$@"
END
  chmod +x "$1$kubelet"
}

# The project comes by a folder of this machine: with much traffic that kernel's network stands still.
run() {
  rm -rf "$state/project"
  mkdir "$state/project"
  git -C "$project" archive --format=tar HEAD | tar -xf - -C "$state/project"
  in_vm "mkdir -p /mnt/project && mount -t hostfs none /mnt/project -o $state/project && rm -rf $there/project &&
    cp -a /mnt/project $there/project && umount /mnt/project && cd $there/project &&
    python3 -m compileall -q agent cli cni controlplane nodelib policy"
  in_vm "NODEWRIGHT_CACHE=$there/cache NODEWRIGHT_PYTHON=$there/venv/bin/python $there/project/nodewright conformance \
    --suite node --plain $(printf '%q ' "$@")"
}

stop() {
  running && kill -- "-$(<"$pid_file")"
  while running; do sleep 0.2; done
  ip netns delete "$space" 2>/dev/null || true
  rm -f "$pid_file" "$state/disk.raw"
}

running() { [[ -s $pid_file ]] && grep -qs linux.uml "/proc/$(<"$pid_file")/cmdline"; }

in_vm() {
  ip netns exec "$space" ssh -q -i "$state/key" -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=20 \
    -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "vagrant@$address" "sudo bash -c $(printf %q "$*")"
}

main "$@"
