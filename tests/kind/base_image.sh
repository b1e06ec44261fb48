#!/usr/bin/env bash
# The base of kind's node images (kind's images/base/Dockerfile) without a registry: Debian from packages by debootstrap,
# kind's own files, and programs that this project builds.
#
#   tests/kind/base_image.sh MODULE PROGRAMS ARCHIVE    writes a file for `docker import`
#
# MODULE: the sources of sigs.k8s.io/kind. PROGRAMS: a folder with containerd, containerd-shim-runc-v2, ctr, runc, crictl.
# Needs root and debootstrap. It differs from kind's: Debian 12 in place of 13, Debian's
# CNI plugins, Python beside them for nodewright's package, no fuse-overlayfs (which is for rootless Docker).
set -euo pipefail

module=$1
programs=$2
archive=$(realpath -m "$3")
# Those of kind's Dockerfile, and those that come with its base image or are built there.
packages=(
  systemd conntrack iptables nftables iproute2 ethtool util-linux mount kmod libseccomp2 pigz
  nfs-common open-iscsi e2fsprogs bash ca-certificates curl jq procps findutils
  containernetworking-plugins python3
)

main() {
  work=$(mktemp -d "${archive%/*}/.base-XXXXXX")
  trap 'rm -rf --one-file-system "$work"' EXIT
  local root=$work/root
  debootstrap --variant=minbase --include="$(IFS=,; echo "${packages[*]}")" bookworm "$root" "$(mirror)" >&2
  files "$root"
  services "$root"
  install_programs "$root"
  rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/usr/share/{doc,man}/*
  : >"$root/etc/resolv.conf"
  tar -C "$root" --numeric-owner -cf "$archive.new" .
  mv "$archive.new" "$archive"
}

files() {
  cp -r "$module/images/base/files/." "$1/"
  chmod -R u=rwX,go=rX "$1"/kind "$1"/LICENSES "$1"/etc/{containerd,default,sysctl.d,systemd/system,crictl.yaml}
  chmod 755 "$1"/usr/local/bin/* "$1"/kind/bin/*
}

services() {
  local root=$1
  rm -f "$root"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service \
    "$root"/lib/systemd/system/multi-user.target.wants/* "$root"/etc/systemd/system/*.wants/* \
    "$root"/lib/systemd/system/local-fs.target.wants/* "$root"/lib/systemd/system/sockets.target.wants/*{udev,initctl}* \
    "$root"/lib/systemd/system/basic.target.wants/*
  echo ReadKMsg=no >>"$root/etc/systemd/journald.conf"
  ln -sf /usr/lib/systemd/systemd "$root/sbin/init"
  chroot "$root" systemctl -q enable kubelet containerd undo-mount-hacks
  chroot "$root" systemctl -q mask systemd-binfmt # it would write to the kernel that all share
  mkdir -p "$root/etc/kubernetes/manifests"
}

install_programs() {
  local root=$1
  install -m 755 -t "$root/usr/local/bin" "$programs"/{containerd,containerd-shim-runc-v2,ctr,crictl}
  install -m 755 -t "$root/usr/local/sbin" "$programs/runc"
  install -D -m 755 -t "$root/opt/cni/bin" "$root"/usr/lib/cni/{host-local,loopback,ptp,portmap}
  chroot "$root" sh -euc "ctr oci spec | jq '.hooks.createContainer += [{path: \"/kind/bin/mount-product-files.sh\"}]
    | del(.process.rlimits)' >/etc/containerd/cri-base.json"
}

# The mirror that this machine itself installs from.
mirror() {
  [[ -n ${NODEWRIGHT_MIRROR:-} ]] && { echo "$NODEWRIGHT_MIRROR"; return; }
  cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 's/^URIs: *//p' | head -n 1 | grep . ||
    sed -n 's/^deb *\(\[[^]]*\]\)\? *\([^ ]*\) .*/\2/p' /etc/apt/sources.list | head -n 1 | grep . ||
    { echo "error: no Debian mirror found in /etc/apt: set NODEWRIGHT_MIRROR" >&2; return 1; }
}

main
