# Process 1 of a machine in namespaces of its own, with nothing on it yet; then the command line behind the first word.
# What belongs to the machine is in memory, or below / of the machine that this one is on, which it only reads.
set -e
hostname lone
umount -l /sys/fs/cgroup 2>/dev/null || true
mount -t sysfs sysfs /sys
if [ -n "$CONTROLLERS" ]; then
    mount -t tmpfs tmpfs /sys/fs/cgroup
    for one in $CONTROLLERS; do
        mkdir "/sys/fs/cgroup/$one"
        case $one in
            systemd) mount -t cgroup -o none,name=systemd cgroup "/sys/fs/cgroup/$one" ;;
            unified) mount -t cgroup2 cgroup2 "/sys/fs/cgroup/$one" ;;
            *) mount -t cgroup -o "$one" cgroup "/sys/fs/cgroup/$one" ;;
        esac
    done
else
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
for one in /run /var/lib /var/log /opt; do mount -t tmpfs tmpfs $one; done
mkdir /run/upper /run/work /run/netns
if [ -n "$CONTROLLERS" ]; then
    # CRI-O believes this list, also of a controller that is mounted nowhere, as hugetlb is on some machines.
    awk '/^#/ || $2' /proc/cgroups >/run/cgroups
    mount --bind /run/cgroups /proc/cgroups
    mkdir /run/proc
    mount -t proc proc /run/proc # users of their own may only mount /proc where one is that hides nothing
fi
mount -t overlay -o lowerdir=/etc,upperdir=/run/upper,workdir=/run/work overlay /etc
mount --make-shared /run
mount --make-shared /var/lib
mkdir -p /etc/cni/net.d /opt/cni/bin /var/lib/kubelet /var/log/pods /var/log/containers
echo lone >/etc/hostname
echo "127.0.0.1 localhost lone" >/etc/hosts
echo "nameserver $ADDRESS" >/etc/resolv.conf
ip link set lo up
ip link add eth0 type veth peer name far
ip link set far up
ip addr add "$ADDRESS/24" dev eth0
ip link set eth0 up
ip route add default via "${ADDRESS%.*}.1"
echo 1 >/proc/sys/net/ipv4/ip_forward
touch "$1/is-up"
sleep infinity &
wait  # and reap what has lost its parent, such as conmon
