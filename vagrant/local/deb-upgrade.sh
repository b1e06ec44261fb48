#!/usr/bin/env bash
# The Debian package on a machine with systemd and cgroup v2, under a cluster of kubeadm's: an older package is installed
# and `kubeadm init` run with it; then, while pods run, answer and are made, dpkg puts the newer one in its place, the
# older one again, and the newer one again; then it is removed and purged. deb_witness.py looks on.
#
#   vagrant/local/deb-upgrade.sh [COMMIT]     the package of COMMIT (default: HEAD~40) and that of HEAD
#
# The machine is one of node-suite.sh's, its own, which is ended and removed afterwards (NODEWRIGHT_UPGRADE_KEEP=1: not).
# State is below NODEWRIGHT_UPGRADE_STATE (default: in the cache). What was seen is printed. Ends with 1 if a pod took
# harm or something of the package is left at the end. Needs what node-suite.sh needs; about twenty minutes.
set -euo pipefail

here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
project=$(dirname -- "$(dirname -- "$here")")
state=${NODEWRIGHT_UPGRADE_STATE:-${NODEWRIGHT_CACHE:-${HOME:-/root}/.cache/nodewright}/deb-upgrade}
export NODEWRIGHT_SUITE_STATE=$state/vm NODEWRIGHT_SUITE_SPACE=nodewright-upgrade-vm
shared=$state/shared # a folder that the VM mounts

main() {
  local commit=${1:-HEAD~40} failed=0
  mkdir -p "$shared" "$NODEWRIGHT_SUITE_STATE"
  trap finish EXIT
  package "$commit" old
  package HEAD new
  rm -rf "$shared/project"
  mkdir "$shared/project"
  git -C "$project" archive --format=tar HEAD | tar -xf - -C "$shared/project"
  "$project/nodewright" payload "$shared/payload"
  "$here/node-suite.sh" start
  vm "mkdir -p /mnt/shared && mount -t hostfs none /mnt/shared -o $shared"
  vm "bash /mnt/shared/project/vagrant/local/deb-node.sh raise"
  for which in new old new; do
    vm "bash /mnt/shared/project/vagrant/local/deb-node.sh replace $which" || failed=1
  done
  vm "bash /mnt/shared/project/vagrant/local/deb-node.sh remove" || failed=1
  return $failed
}

# package COMMIT NAME: made by the code of that commit.
package() {
  local source=$state/source made
  rm -rf "$source"
  git clone -q --no-checkout "$project" "$source"
  git -C "$source" checkout -q --detach "$(git -C "$project" rev-parse "$1")"
  rm -rf "$state/made"
  "$source/nodewright" package "$state/made" >&2
  made=$(ls "$state"/made/*.deb)
  mv "$made" "$shared/$2.deb"
  rm -rf "$source" "$state/made"
}

vm() { "$here/node-suite.sh" exec "$*"; }

finish() {
  [[ -n ${NODEWRIGHT_UPGRADE_KEEP:-} ]] || "$here/node-suite.sh" stop
}

main "$@"
