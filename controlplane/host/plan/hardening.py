"""How systemd confines the daemons that `install` and the package put on a host: lines of their units. Pure.

https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html; `systemd-analyze security` shows the figure.
"""

from __future__ import annotations

# What neither daemon does, whatever it mounts or however it makes rules.
_BOTH = """NoNewPrivileges=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictRealtime=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
# iptables of the legacy kind would load its module itself, which the daemon may not.
ExecStartPre=-+/sbin/modprobe --all --quiet ip_tables ip6_tables nf_conntrack
"""

AGENT = f"""
# Confinement. Nothing here may make a mount namespace (ProtectSystem=, PrivateTmp=, ProtectKernelLogs= and more do):
# the container runtime must see what the agent mounts. It keeps the capabilities for mounts, cgroups, devices, owners,
# signals and networks of pods; it does not load modules, set the clock, boot, or read the kernel's log and memory.
{_BOTH}CapabilityBoundingSet=~CAP_AUDIT_CONTROL CAP_AUDIT_READ CAP_AUDIT_WRITE CAP_BLOCK_SUSPEND CAP_BPF CAP_IPC_LOCK
CapabilityBoundingSet=~CAP_LEASE CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_PERFMON CAP_SYS_BOOT CAP_SYS_MODULE CAP_SYS_PACCT
CapabilityBoundingSet=~CAP_SYS_RAWIO CAP_SYS_TIME CAP_SYS_TTY_CONFIG CAP_SYSLOG CAP_WAKE_ALARM
RestrictNamespaces=mnt net
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
"""

PROXY = f"""
# Confinement. It makes rules, writes sysctls below net, and answers at its metrics, health and relay ports.
{_BOTH}CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE CAP_SYS_RESOURCE
RestrictNamespaces=yes
RestrictSUIDSGID=yes
SystemCallFilter=@system-service
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectProc=invisible
ProtectSystem={{protect_system}}
PrivateDevices=yes
PrivateTmp=yes
UMask=0077
"""
# A checkout and its Python environment may be below /root or /home, and the launcher keeps the environment current.
CHECKOUT = {"protect_system": "full"}
# The package has everything below /usr. xtables.lock is in /run.
PACKAGED = {"protect_system": "strict\nReadWritePaths=/run\nProtectHome=yes"}
