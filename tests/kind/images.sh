#!/usr/bin/env bash
# Makes kind's node image without a registry, by `kind build node-image`, and another with nodewright's package in it.
#
#   tests/kind/images.sh FOLDER    keeps in FOLDER what it made: kind and other programs, the base, the release, the package
#
# Images: localhost/kind-node and localhost/kind-nodewright. `docker` is that of tests/kind/machine.sh.
# NODEWRIGHT_KINDNETD names kind's program for the pod network; without it Go fetches and builds it. It is a module of
# its own without a tagged version, which not every module proxy has. NODEWRIGHT_PYTHON: an environment of the project.
set -euo pipefail

here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
project=$(dirname -- "$(dirname -- "$here")")
mkdir -p "${1:?usage: images.sh FOLDER}"
folder=$(realpath "$1")
python=${NODEWRIGHT_PYTHON:-python3}
export PYTHONPATH=$project DOCKER_BUILDKIT=0

main() {
  local module
  module=$(cd "$project/controlplane/go/kind" && go mod download sigs.k8s.io/kind && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)
  "$python" -m tests.kind.node_release programs "$folder/programs"
  [[ -e $folder/kindnetd ]] || kindnetd "$module"
  [[ -e $folder/base.tar ]] || "$here/base_image.sh" "$module" "$folder/programs" "$folder/base.tar"
  in_machine docker image inspect localhost/kind-base >/dev/null 2>&1 || base
  "$python" -m tests.kind.node_release tarball "$module" "$folder/kindnetd" "$folder/release.tar.gz"
  in_machine "$folder/programs/kind" build node-image --type file --base-image localhost/kind-base \
    --image localhost/kind-node "$folder/release.tar.gz"
  nodewright
}

in_machine() { "$here/machine.sh" exec "$@"; }

# The names of kind's images end in the commit that they were built from.
kindnetd() {
  if [[ -n ${NODEWRIGHT_KINDNETD:-} ]]; then
    install -m 755 "$NODEWRIGHT_KINDNETD" "$folder/kindnetd"
    return
  fi
  local commit
  commit=$(sed -n 's/^const kindnetdImage = ".*-\(\w*\)"$/\1/p' "$1/pkg/build/nodeimage/const_cni.go")
  CGO_ENABLED=0 GOBIN=$folder go install "sigs.k8s.io/kind/images/kindnetd/cmd/kindnetd@$commit"
}

base() {
  in_machine docker import "$folder/base.tar" localhost/kind-files >/dev/null
  in_machine docker build -q -t localhost/kind-base - <<'END'
FROM localhost/kind-files
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
END
}

# As anybody would do it who has Docker, a node image of kind's and our package.
nodewright() {
  rm -rf "$folder/package"
  (cd "$project" && "$python" -m cli package "$folder/package" --plain)
  printf 'FROM localhost/kind-node\nCOPY nodewright_*.deb /tmp/\nRUN dpkg -i /tmp/nodewright_*.deb && rm /tmp/nodewright_*.deb\n' \
    >"$folder/package/Dockerfile"
  in_machine docker build -q -t localhost/kind-nodewright "$folder/package"
}

main
