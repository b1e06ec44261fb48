"""Names of sysctls and the namespaces that they belong to (k8s.io/component-helpers/node/util/sysctl)."""

from __future__ import annotations

NET, IPC, UTS, USER = "Net", "IPC", "UTS", "User"
_NAMES = {
    "kernel.domainname": UTS,
    **dict.fromkeys(("kernel.sem", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni"), IPC),
    **dict.fromkeys(("kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced"), IPC),
}
_PREFIXES = {"net.": NET, "fs.mqueue.": IPC, "user.": USER}


def normalized(name: str) -> str:
    """Dots as separators: net/ipv4/conf/eth0.1/x is net.ipv4.conf.eth0/1.x (sysctl(8))."""
    dot, slash = name.find("."), name.find("/")
    if slash < 0 or 0 <= dot < slash:
        return name
    return name.translate(str.maketrans("./", "/."))


def namespace_of(name: str) -> str:
    """The namespace of a normalized name; "" for one of the whole machine, or an unknown one."""
    prefixed = (space for prefix, space in _PREFIXES.items() if name.startswith(prefix))
    return _NAMES.get(name) or next(prefixed, "")
