#!/usr/bin/env bash
# The Debian package on a machine with systemd and cgroup v2, whose kubelet has an API server: an older package is
# installed; then, while pods run, answer and are made, dpkg puts the newer one in its place, the older one again, and
# the newer one again; then it is removed and purged. deb_witness.py looks on.
#
#   vagrant/local/deb-upgrade.sh [COMMIT]     the package of COMMIT (default: HEAD~40) and that of HEAD
#
# The machine is one of node-suite.sh's, its own, which is ended and removed afterwards (NODEWRIGHT_UPGRADE_KEEP=1: not);
# etcd and the API server run on this side of its cable. State is below NODEWRIGHT_UPGRADE_STATE (default: in the cache).
# What was seen is printed. Ends with 1 if a pod took harm or something of the package is left at the end. Needs what
# node-suite.sh needs, and openssl; about twenty minutes.
set -euo pipefail

here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
project=$(dirname -- "$(dirname -- "$here")")
cache=${NODEWRIGHT_CACHE:-${HOME:-/root}/.cache/nodewright}
state=${NODEWRIGHT_UPGRADE_STATE:-$cache/deb-upgrade}
export NODEWRIGHT_SUITE_STATE=$state/vm NODEWRIGHT_SUITE_SPACE=nodewright-upgrade-vm
shared=$state/shared # a folder that the VM mounts
api=192.168.78.1

main() {
  local commit=${1:-HEAD~40} which failed=0 etcd server kubectl
  mkdir -p "$shared" "$NODEWRIGHT_SUITE_STATE"
  read -r etcd server kubectl < <(programs)
  package "$commit" old
  package HEAD new
  rm -rf "$shared/project"
  mkdir "$shared/project"
  git -C "$project" archive --format=tar HEAD vagrant | tar -xf - -C "$shared/project"
  trap finish EXIT
  "$here/node-suite.sh" start
  control_plane
  vm "mkdir -p /mnt/shared && mount -t hostfs none /mnt/shared -o $shared"
  node install
  pods
  for which in new old new; do
    kubectl delete pod -l app=born --wait=true
    replace $which || failed=1
  done
  node remove || failed=1
  return $failed
}

# package COMMIT NAME: made by the code of that commit. NAME.deb that is there and of that commit stays.
package() {
  local source=$state/source commit made
  commit=$(git -C "$project" rev-parse "$1")
  [[ -e $shared/$2.deb && $(dpkg-deb -f "$shared/$2.deb" Version) == *".${commit:0:8}" ]] && return
  rm -rf "$source" "$state/made"
  git clone -q --no-checkout "$project" "$source"
  git -C "$source" checkout -q --detach "$commit"
  "$source/nodewright" package "$state/made" >&2
  made=$(ls "$state"/made/*.deb)
  mv "$made" "$shared/$2.deb"
  rm -rf "$source" "$state/made"
}

# Whoever has the token may do everything, and nobody else is on that cable. No controllers and no scheduler: pods name
# their node.
control_plane() {
  local folder=$state/api token
  rm -rf "$folder"
  mkdir -p "$folder"
  ip -n "$NODEWRIGHT_SUITE_SPACE" link set lo up
  in_space "$etcd" --data-dir="$folder/etcd" --log-level=warn --unsafe-no-fsync=true
  token=$(openssl rand -hex 16)
  echo "$token,admin,admin,system:masters" >"$folder/tokens"
  openssl genrsa -out "$folder/accounts.key" 2048 2>/dev/null
  in_space "$server" --etcd-servers=http://127.0.0.1:2379 --bind-address=$api --advertise-address=$api --cert-dir="$folder" \
    --token-auth-file="$folder/tokens" --authorization-mode=AlwaysAllow --disable-admission-plugins=ServiceAccount \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$folder/accounts.key" \
    --service-account-signing-key-file="$folder/accounts.key" --service-cluster-ip-range=10.96.0.0/16 --allow-privileged=true
  until [[ -e $folder/apiserver.crt ]]; do sleep 0.2; done
  printf '{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
    "clusters":[{"name":"c","cluster":{"server":"https://%s:6443","certificate-authority-data":"%s"}}],
    "users":[{"name":"u","user":{"token":"%s"}}]}\n' $api "$(base64 -w0 "$folder/apiserver.crt")" "$token" >"$shared/kubeconfig"
  until kubectl get --raw /readyz >/dev/null 2>&1; do sleep 0.5; done
}

# In the background, until `finish`.
in_space() {
  ip netns exec "$NODEWRIGHT_SUITE_SPACE" setsid "$@" >>"$state/api/$(basename "$1").log" 2>&1 </dev/null &
  started+=($!)
}
started=()

programs() {
  PYTHONPATH=$project "$(dirname "$(ls -td "$cache"/venv/*/.complete | head -n 1)")/bin/python" - "$cache" <<'PYTHON'
import sys
from pathlib import Path

from controlplane.binaries.work import ensure

names = ("etcd", "kube-apiserver", "kubectl")
built = ensure(names, cache_dir=Path(sys.argv[1]).resolve(), progress=lambda line: print(line, file=sys.stderr))
print(*(built.path(name) for name in names))
PYTHON
}

kubectl() { ip netns exec "$NODEWRIGHT_SUITE_SPACE" "$kubectl" --kubeconfig="$shared/kubeconfig" "$@"; }

pods() {
  until kubectl patch node uml -p '{"spec":{"podCIDR":"10.244.0.0/24","podCIDRs":["10.244.0.0/24"]}}'; do sleep 2; done
  kubectl wait --for=condition=Ready node --all --timeout=300s
  kubectl create -f "$here/deb-pods.yaml"
  kubectl wait --for=condition=Ready pod --all --timeout=300s
  local address
  address=$(kubectl get pod web -o 'jsonpath={.status.podIP}')
  kubectl create -f - <<END
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: ["$address"]}]
ports: [{name: "", port: 8080}]
END
  kubectl get pods -o wide
}

# With what the VM had of a core meanwhile: what takes long there may only have had to wait.
replace() {
  local status=0 began=$SECONDS before
  before=$(used)
  node replace "$1" || status=$?
  echo "the VM had $(($(used) - before)) s of CPU in $((SECONDS - began)) s"
  return $status
}

# Seconds of CPU of the VM's processes: those that live, and those that its first one has waited for.
used() {
  { cat /proc/[0-9]*/stat 2>/dev/null || true; } | sed 's/ (.*) / /' |
    awk -v first="$(<"$NODEWRIGHT_SUITE_STATE/linux.pid")" -v ticks="$(getconf CLK_TCK)" '
      $5 == first { sum += $13 + $14 }
      $1 == first { sum += $15 + $16 }
      END { print int(sum / ticks) }'
}

vm() { "$here/node-suite.sh" exec "$*"; }
node() { vm "bash /mnt/shared/project/vagrant/local/deb-node.sh $*"; }

finish() {
  [[ -n ${NODEWRIGHT_UPGRADE_KEEP:-} ]] && { echo "left running: the VM, and ${started[*]}" >&2; return; }
  # Nothing of theirs is kept, and an API server without its etcd takes its time.
  ((${#started[@]})) && kill -KILL "${started[@]}" 2>/dev/null || true
  "$here/node-suite.sh" stop
}

main "$@"
