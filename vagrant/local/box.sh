#!/usr/bin/env bash
# Makes the box `nodewright/debian12` for machines that cannot download one: Debian 12 from packages, as users of a
# public box have it (systemd, cgroup v2, a vagrant user with Vagrant's insecure key), for the libvirt provider.
#
#   vagrant/local/box.sh FOLDER      writes FOLDER/box.json and the box it names; keeps a box that is there
#
# Needs root; debootstrap, e2fsprogs, fdisk, grub-pc-bin, grub-common, qemu-utils. About two minutes and 3 GB.
# NODEWRIGHT_BOX_KEY names a public SSH key to let in instead of Vagrant's; then Vagrant need not be here.
set -euo pipefail

folder=$(realpath -m "${1:?usage: box.sh FOLDER}")
name=nodewright/debian12
version=1.0.$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-6 | { read -r hex; echo $((16#$hex)); })
box=$folder/debian12-$version.box
packages=(
  systemd systemd-sysv dbus libpam-systemd openssh-server sudo rsync kmod procps ca-certificates curl linux-image-cloud-amd64
  initramfs-tools lz4 python3 python3-venv iproute2 iptables nftables conntrack socat ethtool runc containernetworking-plugins
)
drivers=(virtio_pci virtio_blk virtio_net virtio_rng virtio_scsi sd_mod ext4 crc32c_generic)

main() {
  mkdir -p "$folder"
  if [[ ! -e $box ]]; then
    work=$(mktemp -d "$folder/.work-XXXXXX")
    trap 'umount -q "$work/root/proc" || true; rm -rf --one-file-system "$work"' EXIT # debootstrap's, when it is ended
    make_root "$work/root"
    make_image "$work"
    pack "$work"
  fi
  printf '{"name":"%s","versions":[{"version":"%s","providers":[{"name":"libvirt","url":"file://%s"}]}]}\n' \
    "$name" "$version" "$box" >"$folder/box.json"
  echo "$folder/box.json"
}

make_root() {
  local root=$1
  echo "box: Debian packages" >&2
  debootstrap --variant=minbase --include="$(join "${packages[@]}")" bookworm "$root" "$(mirror)" >&2
  echo "box: configuration" >&2
  printf 'LABEL=root / ext4 defaults,noatime 0 1\n' >"$root/etc/fstab"
  printf 'debian12\n' >"$root/etc/hostname"
  printf '127.0.0.1 localhost\n127.0.1.1 debian12\n::1 localhost ip6-localhost\n' >"$root/etc/hosts"
  # Each VM makes its own: with one and the same, all would ask for, and get, the same address.
  : >"$root/etc/machine-id"
  rm -f "$root/var/lib/dbus/machine-id"
  : >"$root/etc/resolv.conf" # debootstrap leaves the builder's
  rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/archives/*.deb
  printf '[Match]\nName=eth0\n[Network]\nDHCP=ipv4\n' >"$root/etc/systemd/network/10-eth0.network"
  chroot "$root" systemctl -q enable systemd-networkd ssh
  chroot "$root" systemctl -q mask systemd-networkd-wait-online apt-daily.timer apt-daily-upgrade.timer
  vagrant_user "$root"
  initramfs "$root"
}

# https://developer.hashicorp.com/vagrant/docs/boxes/base: the user, the password, the public insecure key, sudo.
vagrant_user() {
  local root=$1 home=$1/home/vagrant
  chroot "$root" useradd --create-home --shell /bin/bash vagrant
  echo 'root:vagrant
vagrant:vagrant' | chroot "$root" chpasswd
  printf 'vagrant ALL=(ALL) NOPASSWD: ALL\n' >"$root/etc/sudoers.d/vagrant"
  chmod 440 "$root/etc/sudoers.d/vagrant"
  install -d -m 700 "$home/.ssh"
  cp "$(insecure_key)" "$home/.ssh/authorized_keys"
  chmod 600 "$home/.ssh/authorized_keys"
  chroot "$root" chown -R vagrant:vagrant /home/vagrant
  printf 'UseDNS no\n' >"$root/etc/ssh/sshd_config.d/vagrant.conf"
}

initramfs() {
  local root=$1
  sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=lz4/' "$root/etc/initramfs-tools/initramfs.conf"
  printf '%s\n' "${drivers[@]}" >>"$root/etc/initramfs-tools/modules"
  mount --bind /proc "$root/proc"
  chroot "$root" update-initramfs -u -k all >&2 || { umount "$root/proc"; return 1; }
  umount "$root/proc"
  install -d "$root/boot/grub/i386-pc"
  cp -r /usr/lib/grub/i386-pc/*.mod /usr/lib/grub/i386-pc/*.lst "$root/boot/grub/i386-pc/"
  cat >"$root/boot/grub/grub.cfg" <<'END'
set timeout=0
search --no-floppy --label root --set=root
linux /vmlinuz root=LABEL=root ro quiet net.ifnames=0 console=tty0 console=ttyS0 mitigations=off no_timer_check panic=10
initrd /initrd.img
boot
END
}

# No loop device and no mount: a file system made from a folder, inside a file, behind a partition table.
make_image() {
  local work=$1 raw=$1/disk.raw
  echo "box: disk image" >&2
  truncate -s 10G "$raw"
  printf 'label: dos\nstart=2048, type=83, bootable\n' | sfdisk -q "$raw"
  mkfs.ext4 -q -F -L root -E offset=1048576 -d "$work/root" "$raw" $(((10 * 1024 - 2) * 1024))k
  grub-mkimage -O i386-pc -p '(hd0,msdos1)/boot/grub' -o "$work/core.img" \
    biosdisk part_msdos ext2 search search_label linux normal serial terminal echo
  dd if=/usr/lib/grub/i386-pc/boot.img of="$raw" bs=440 count=1 conv=notrunc status=none
  dd if="$work/core.img" of="$raw" bs=512 seek=1 conv=notrunc status=none
  qemu-img convert -O qcow2 "$raw" "$work/box.img"
  rm "$raw"
}

pack() {
  local work=$1
  printf '{"provider":"libvirt","format":"qcow2","virtual_size":10}\n' >"$work/metadata.json"
  printf 'Vagrant.configure("2") { |config| }\n' >"$work/Vagrantfile"
  tar -C "$work" -cf "$box.new" metadata.json Vagrantfile box.img
  mv "$box.new" "$box"
}

# The mirror that this machine itself installs from.
mirror() {
  [[ -n ${NODEWRIGHT_MIRROR:-} ]] && { echo "$NODEWRIGHT_MIRROR"; return; }
  cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 's/^URIs: *//p' | head -n 1 | grep . ||
    sed -n 's/^deb *\(\[[^]]*\]\)\? *\([^ ]*\) .*/\2/p' /etc/apt/sources.list | head -n 1 | grep . ||
    { echo "error: no Debian mirror found in /etc/apt: set NODEWRIGHT_MIRROR" >&2; return 1; }
}

insecure_key() {
  [[ -n ${NODEWRIGHT_BOX_KEY:-} ]] && { echo "$NODEWRIGHT_BOX_KEY"; return; }
  find / -xdev -path '*/keys/vagrant.pub' -not -path '*/.work-*' 2>/dev/null | head -n 1 | grep . ||
    { echo "error: Vagrant's insecure public key is not here: install vagrant" >&2; return 1; }
}

join() { local IFS=,; echo "$*"; }

main
