#!/usr/bin/env bash
# Clusters of `up` through reboots and power cuts of a machine: Debian 12 with systemd and cgroup v2, in an emulated VM,
# with nodewright from a release, and without a network. While a client writes, the VM is
#
#   first    cut off from power just after the first `up` of its life, whose cache must not be harmed by that
#   stop     rebooted between `nodewright stop` and `nodewright start`
#   reboot   rebooted, without a `stop`
#   cut      cut off from power (SIGKILL for qemu), with a cluster of plain `up`
#   durable  cut off from power twice, with a cluster of `up --durable`: in the middle of writes, and just after `up`
#
# Leave the machine alone meanwhile: an API server that is too slow to read its roles in 30 s ends, and begins anew.
#
#   vagrant/local/reboot.sh RELEASE [SCENARIO...]     by default all of them, in this order
#
# RELEASE: what `nodewright release RELEASE` wrote. Ends with 1 if anything is lost that docs/clusters.md promises to
# keep; seconds of each step are printed, and written to STATE/report. STATE is $NODEWRIGHT_REBOOT_STATE, or a folder of
# the cache; it keeps the disk image of Debian and nothing else. NODEWRIGHT_REBOOT_KEEP=1 leaves the VM running.
# Needs root for box.sh, and qemu-system-x86, qemu-utils, openssh-client, e2fsprogs beside what box.sh needs; 15 GB, 6 GB
# of memory; about an hour without KVM (NODEWRIGHT_ACCEL=kvm takes it).
set -euo pipefail

here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
cache=${NODEWRIGHT_CACHE:-${HOME:-/root}/.cache/nodewright}
state=${NODEWRIGHT_REBOOT_STATE:-$cache/reboot}
port=${NODEWRIGHT_REBOOT_PORT:-2261} # of this machine, to the VM's ssh
accelerator=${NODEWRIGHT_ACCEL:-tcg}
patience=900                  # seconds to boot
lasting=45                    # seconds of writes before something happens: more than the half minute that may be lost
image=registry.k8s.io/e2e-test-images/agnhost:2.66.1
qemu=0

main() {
  [[ -d ${1:-} ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
  local release=$1 scenario failed=0
  shift
  (($#)) || set -- first stop reboot cut durable
  mkdir -p "$state"
  : >"$state/report"
  trap finish EXIT
  trap 'exit 130' INT TERM
  prepare "$release"
  timed "boot, to ssh" boot
  timed "venv and pip install" install
  for scenario in "$@"; do
    "scenario_$scenario" || { failed=1; say "$scenario: FAILED"; }
  done
  say "done, exit status $failed"
  return $failed
}

# --- scenarios ---

# The cluster of plain `up` may be damaged then; a new one must come up from the cache.
scenario_first() {
  late_writeback
  timed "first: nodewright up" nodewright up --plain || return
  cut_power
  timed "first: boot, to ssh" boot || return
  if timed "first: nodewright start" nodewright start --plain; then
    say "first: the cluster lived on"
  else
    say "first: start failed, which docs/clusters.md allows; its words:"
    tail -n 8 "$state/last" | tee -a "$state/report"
  fi
  timed "first: nodewright down" nodewright down --plain || return
  raise
}

scenario_stop() {
  raise || return
  write stop
  sleep "$lasting"
  end_writes
  timed "stop: nodewright stop" nodewright stop --plain || return
  timed "stop: reboot, to ssh" reboot_vm || return
  timed "stop: nodewright start" nodewright start --plain || return
  well stop
}

scenario_reboot() {
  raise || return
  write reboot
  sleep "$lasting"
  timed "reboot: reboot without stop, to ssh" reboot_vm || return
  timed "reboot: nodewright start" nodewright start --plain || return
  well reboot
}

# Plain `up` may lose the last half minute, or need a new cluster. Then it must say so.
scenario_cut() {
  raise || return
  write cut
  sleep "$lasting"
  cut_power
  timed "cut: boot, to ssh" boot || return
  if timed "cut: nodewright start" nodewright start --plain; then
    well cut lossy
  else
    say "cut: start failed: a cluster that is not durable may be damaged; its words:"
    tail -n 12 "$state/last" | tee -a "$state/report"
    timed "cut: nodewright down" nodewright down --plain && timed "cut: nodewright up" nodewright up --plain
  fi
}

scenario_durable() {
  nodewright down --plain || true
  late_writeback
  timed "durable: nodewright up --durable" nodewright up --durable --plain || return
  deploy && write early || return
  sleep 3
  cut_power
  timed "durable: boot after a cut just after up, to ssh" boot || return
  timed "durable: nodewright start" nodewright start --plain || return
  well early || return
  write late
  sleep "$lasting"
  cut_power
  timed "durable: boot after a cut in the middle of writes, to ssh" boot || return
  timed "durable: nodewright start" nodewright start --plain || return
  well late && well early
}

# --- the cluster and its witness ---

raise() {
  in_vm test -e /var/lib/nodewright/nodewright/cluster.json && { well "" && return; }
  timed "nodewright up" nodewright up --plain && deploy
}

deploy() {
  manifests | in_vm /opt/nodewright/bin/nodewright kubectl apply -f - >>"$state/transcript"
  timed "3 pods Ready" witness pods app=web 3 && timed "Service answers" witness serves web 3
}

manifests() {
  cat <<END
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: $image
        args: [netexec, --http-port=8080]
        readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30090}]
END
}

# write PREFIX: the client goes on in the VM until it is told to end, or until the VM does.
write() {
  in_vm "systemd-run -q --unit witness --setenv=KUBECONFIG=$(kubeconfig) /opt/nodewright/bin/python \
    /media/notes/witness.py write /media/notes/acknowledged $1"
}

end_writes() { in_vm "systemctl stop witness; journalctl -q -o cat -u witness | tail -n 5" | tee -a "$state/transcript"; }

# well PREFIX [lossy]: what was acknowledged is there, the pods run again, the Service reaches them.
well() {
  timed "3 pods Ready again" witness pods app=web 3 || return
  timed "Service answers again" witness serves web 3 || return
  [[ -n $1 ]] || return 0
  local status=0
  timed "$1: writes" witness check /media/notes/acknowledged "$1" || status=$?
  [[ $status == 0 || ($status == 3 && ${2:-} == lossy) ]]
}

witness() { in_vm "KUBECONFIG=$(kubeconfig) /opt/nodewright/bin/python /media/notes/witness.py $*"; }
kubeconfig() { echo /var/lib/nodewright/nodewright/admin.conf; }
nodewright() { in_vm "/opt/nodewright/bin/nodewright $*"; }

# What is written stays in memory for minutes: a machine that is ten times as fast has done as much in half a minute.
late_writeback() {
  in_vm "sysctl -q vm.dirty_expire_centisecs=60000 vm.dirty_writeback_centisecs=60000 vm.dirty_background_ratio=60 \
    vm.dirty_ratio=70 && mount -o remount,commit=600 /"
}

install() {
  in_vm "mkdir -p /media/release && mount -o ro LABEL=release /media/release &&
    python3 -m venv /opt/nodewright &&
    /opt/nodewright/bin/pip install -q --no-index --find-links /media/release nodewright nodewright-binaries &&
    mkdir -p /media/notes && echo 'LABEL=notes /media/notes ext4 defaults 0 2' >>/etc/fstab && mount /media/notes"
  in_vm "cat >/media/notes/witness.py" <"$here/witness.py"
  in_vm sync
}

# --- the machine ---

prepare() {
  local release=$1 size
  say "$(date -u '+%F %R') UTC; release: $(basename "$(find "$release" -maxdepth 1 -name 'nodewright-*.whl')")"
  [[ -e $state/key ]] || ssh-keygen -q -t ed25519 -N '' -C nodewright-reboot -f "$state/key"
  NODEWRIGHT_BOX_KEY=$state/key.pub "$here/box.sh" "$state/box" >/dev/null
  disks=$(mktemp -d "$state/.disks-XXXXXX")
  tar -C "$disks" -xf "$(ls -t "$state"/box/debian12-*.box | head -n 1)" box.img
  qemu-img create -q -f qcow2 -F qcow2 -b "$disks/box.img" "$disks/root.qcow2"
  size=$(du -sm "$release" | cut -f1)
  truncate -s "$((size * 12 / 10 + 64))M" "$disks/release.raw"
  mkfs.ext4 -q -F -L release -m 0 -d "$release" "$disks/release.raw"
  truncate -s 256M "$disks/notes.raw"
  mkfs.ext4 -q -F -L notes "$disks/notes.raw"
}

boot() {
  nice -n 10 qemu-system-x86_64 -accel "$accelerator" -cpu max -smp 2 -m 6G -display none -monitor none \
    -serial "file:$state/console" \
    -drive "file=$disks/root.qcow2,if=virtio,format=qcow2" -drive "file=$disks/release.raw,if=virtio,format=raw,readonly=on" \
    -drive "file=$disks/notes.raw,if=virtio,format=raw" -device virtio-rng-pci \
    -netdev "user,id=net0,restrict=on,hostfwd=tcp:127.0.0.1:$port-:22" -device virtio-net-pci,netdev=net0 \
    >"$state/qemu.log" 2>&1 </dev/null &
  qemu=$!
  until_ssh ""
}

cut_power() { # no function may be called cut: the program is needed, too
  [[ $qemu != 0 ]] || return
  kill -KILL "$qemu"
  wait "$qemu" 2>/dev/null || true
  say "power cut"
}

reboot_vm() {
  local before
  before=$(in_vm cat /proc/sys/kernel/random/boot_id)
  in_vm "systemctl reboot" || true # ssh ends with the machine
  until_ssh "$before"
}

# until_ssh BOOT: until a boot other than BOOT answers.
until_ssh() {
  local began=$SECONDS found
  while ((SECONDS < began + patience)); do
    kill -0 "$qemu" 2>/dev/null || { echo "error: qemu ended: $(<"$state/qemu.log")" >&2; return 1; }
    found=$(in_vm cat /proc/sys/kernel/random/boot_id 2>/dev/null) && [[ -n $found && $found != "$1" ]] && return
    sleep 0.5
  done
  echo "error: the VM did not answer within $patience s: $state/console" >&2
  return 1
}

# A command line as root in the VM.
in_vm() {
  ssh -q -i "$state/key" -p "$port" -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=20 \
    -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null vagrant@127.0.0.1 "sudo bash -c $(printf %q "$*")"
}

# timed WORDS COMMAND...: its seconds and last line go to the report, all that it says to the transcript.
timed() {
  local words=$1 began=${EPOCHREALTIME/./} status=0
  shift
  echo "--- $words" >>"$state/transcript"
  "$@" >"$state/last" 2>&1 || status=$?
  cat "$state/last" >>"$state/transcript"
  local took=$((${EPOCHREALTIME/./} - began)) said=
  [[ $1 == witness || $status != 0 ]] && said=$(tail -n 1 "$state/last")
  say "$(printf '%8d.%d s  %s%s%s' $((took / 1000000)) $((took / 100000 % 10)) "$words" \
    "$( ((status)) && echo " (status $status)")" "${said:+: $said}")"
  return $status
}

say() { echo "$*" | tee -a "$state/report" "$state/transcript"; }

finish() {
  if [[ -n ${NODEWRIGHT_REBOOT_KEEP:-} && $qemu != 0 ]]; then
    echo "the VM goes on: pid $qemu, ssh -i $state/key -p $port vagrant@127.0.0.1; its disks: $disks" >&2
    return
  fi
  if [[ $qemu != 0 ]]; then
    kill -KILL "$qemu" 2>/dev/null || true
    wait "$qemu" 2>/dev/null || true
  fi
  [[ -n ${disks:-} ]] && rm -rf "$disks"
  return 0
}

main "$@"
