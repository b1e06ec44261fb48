"""The contents of the Debian package, which replaces upstream's kubelet package. Pure.

dpkg's database records what was installed, so the files that `nodewright install` writes (host_files) are files of the
package, in the folders for packages. Nothing is enabled or started: that is up to kubeadm, `nodewright join` or an
administrator. https://www.debian.org/doc/debian-policy/
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from controlplane.host.plan import hardening
from controlplane.host.plan.host_files import MODULES, RECORD, HostFile, Layout, host_files
from nodelib.errors import Invalid
from nodelib.version import KUBERNETES_VERSION

NAME = "nodewright"
HOME = f"/usr/lib/{NAME}"
PROJECT, SITE = f"{HOME}/project", f"{HOME}/site"
DOC = f"/usr/share/doc/{NAME}"
# Written by the pod network where it runs, at its default places (cni/settings.py).
CNI_CONFIG, CNI_PLUGIN = "/etc/cni/net.d/10-nodewright.conflist", "/opt/cni/bin/nodewright"
TREE = (
    "agent",
    "bin",
    "cli",
    "cni",
    "controlplane",
    "loadbalancer",
    "csi",
    "nodelib",
    "policy",
    "proxy",
    "nodewright",
    "LICENSE",
    "pyproject.toml",
)  # of the project
# The part of packages.txt that a node needs to run; the rest is for raising, building and testing clusters.
RUNTIME = ("ca-certificates", "conntrack", "iproute2", "iptables", "mount", "nftables", "procps", "util-linux")
# kubeadm's package has 10-kubeadm.conf: that drop-in comes after ours and says the same.
_LAYOUT = Layout(
    commands="/usr/bin",
    units="/usr/lib/systemd/system",
    drop_in="05-nodewright.conf",
    proxy=hardening.PROXY.format_map(hardening.PACKAGED),
)
_UNITS = "kubelet.service nodewright-proxy.service"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el", "s390x": "s390x", "riscv64": "riscv64"}
_TAG = re.compile(r"^Tag: cp(\d)(\d+)-(\w+)-manylinux(?:_(\d+)_(\d+)|\d+)_([a-z]\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Platform:
    """What the compiled wheels need: Python's minor version, Debian's architecture, the oldest glibc."""

    python: tuple[int, int]
    architecture: str
    glibc: tuple[int, int]


def platform(wheels: Iterable[str]) -> Platform:
    """Read from the WHEEL files of the installed packages. A wheel with several tags runs where any of them does.

    Raises Invalid unless they are compiled for exactly one version of Python and one architecture.
    """
    found = [list(_TAG.finditer(text)) for text in wheels]
    tags = [tag for one in found for tag in one]
    # The stable ABI runs on every later version.
    pythons = {(int(tag[1]), int(tag[2])) for tag in tags if tag[3] != "abi3"}
    machines = {_MACHINES.get(tag[6], tag[6]) for tag in tags}
    if len(pythons) != 1 or len(machines) != 1:
        raise Invalid(
            f"are compiled for {sorted(pythons)} and {sorted(machines)}, not for one of each",
            obj="Python packages",
            step="read their WHEEL files",
            action="Make the package with the same version of Python as on the machines that will run it.",
        )
    # Tags without a glibc version (manylinux1 to 2014) come with one that has it.
    oldest = [min((_glibc(tag) for tag in one), default=(0, 0)) for one in found]
    return Platform(pythons.pop(), machines.pop(), max(oldest))


def _glibc(tag: re.Match[str]) -> tuple[int, int]:
    return (int(tag[4]), int(tag[5])) if tag[4] else (2, 17)


def runtime_lock(lock: str, wanted: Collection[str]) -> str:
    """The part of a lock file for `wanted` (requirements of pyproject.toml) and their dependencies."""
    head, *entries = re.split(r"^(?=[a-z0-9][\w.-]*==)", lock, flags=re.MULTILINE)
    names = {re.match(r"[\w-]+", one)[0].lower() for one in wanted}  # type: ignore[index]
    parents = {entry.partition("==")[0]: _parents(entry) for entry in entries}
    kept = {name for name in parents if name in names}
    while more := {name for name, above in parents.items() if above & kept} - kept:
        kept |= more
    return head + "".join(entry for entry in entries if entry.partition("==")[0] in kept)


def _parents(entry: str) -> set[str]:
    return {name.lower() for name in re.findall(r"^    #(?: via)?\s+([\w-]+)", entry, re.MULTILINE)}


def files() -> tuple[HostFile, ...]:
    """Commands, units, sysctls and modules for the project below HOME."""
    return host_files(PROJECT, {"NODEWRIGHT_PYTHON": "/usr/bin/python3", "PYTHONPATH": SITE}, _LAYOUT)


def conffiles(paths: Iterable[str]) -> str:
    """The list of files that an administrator may change: everything below /etc."""
    return "".join(f"{path}\n" for path in paths if path.startswith("/etc/"))


def version(release: str, date: str, commit: str) -> str:
    """The package's version: the project's and its commit (`date` as YYYYMMDDHHMM)."""
    return f"{release}+git{date}.{commit[:8]}"


def control(version: str, made_for: Platform, installed: Mapping[str, str], size_kib: int) -> str:
    """DEBIAN/control. `installed`: the versions of RUNTIME on the machine where the package is made and tested."""
    major, minor = made_for.python
    depends = [
        f"python3 (>= {major}.{minor}~)",
        f"python3 (<< {major}.{minor + 1}~)",
        "libc6 (>= {}.{})".format(*made_for.glibc),
        *(f"{name} (>= {_upstream(installed[name])}~)" if name in installed else name for name in RUNTIME),
    ]
    fields = {
        "Package": NAME,
        "Version": version,
        "Architecture": made_for.architecture,
        "Maintainer": "nodewright <nodewright@localhost>",
        "Section": "admin",
        "Priority": "optional",
        "Installed-Size": str(size_kib),
        "Depends": ", ".join(depends),
        "Recommends": "containerd (>= 1.6.20~) | containerd.io",
        # What kubeadm's package depends on; both have files at the same paths.
        "Provides": f"kubelet (= {KUBERNETES_VERSION.removeprefix('v')})",
        "Conflicts": "kubelet",
        "Replaces": "kubelet",
        "Description": "Kubernetes node agent, pod network and service proxy in Python",
    }
    long = (
        f" kubelet and kube-proxy of Kubernetes {KUBERNETES_VERSION.removeprefix('v')} by nodewright, with upstream's",
        " flags and files. No unit is enabled or started by the installation:",
        " kubeadm init, kubeadm join or an administrator does that.",
    )
    return "".join(f"{name}: {value}\n" for name, value in fields.items()) + "".join(f"{line}\n" for line in long)


def _upstream(version: str) -> str:
    """A Debian version without its revision, so that a security update of this machine is not required elsewhere."""
    return re.sub(r"\+deb\d+u\d+$", "", version.rpartition("-")[0] or version)


def scripts() -> dict[str, str]:
    """The maintainer scripts. In another root (DPKG_ROOT, an image) they only care about files."""
    here = '[ -z "$DPKG_ROOT" ]'
    systemd = f"{here} && [ -d /run/systemd/system ]"
    sysctls = next(one.path for one in files() if one.path.startswith("/etc/sysctl.d/"))
    return {
        "preinst": _script(
            f'if [ "$1" = install ] && [ -e "$DPKG_ROOT{RECORD}" ]; then',
            f'  echo "{NAME}: nodewright install was run on this machine; run this first: nodewright uninstall" >&2',
            "  exit 1",
            "fi",
        ),
        "postinst": _script(
            f'if [ "$1" = configure ] && {here} && command -v py3compile >/dev/null; then',
            "  # The kubelet that runs meanwhile goes first, and so do the pods.",
            f"  nice -n 10 py3compile -p {NAME} {HOME}",
            "fi",
            f'if [ "$1" = configure ] && {systemd}; then',
            f"  modprobe -a {' '.join(MODULES)} || true",
            f"  sysctl -q -p {sysctls} || true",
            "  systemctl daemon-reload",
            "  # After an upgrade: restarting the agent disturbs no pod. Units that are not running stay stopped.",
            # One whose certificate waits for an approval is ready in hours; its restart goes on without dpkg.
            f"  timeout 60 systemctl try-restart {_UNITS} ||",
            f'    echo "{NAME}: not all are ready yet, see: systemctl status {_UNITS}" >&2',
            "fi",
        ),
        "prerm": _script(
            f'if [ "$1" = remove ] && {systemd}; then',
            f"  systemctl disable --now {_UNITS} || true",
            "fi",
            # Remove them whoever made them: no other package has files there.
            f'find "$DPKG_ROOT{HOME}" -name __pycache__ -type d -exec rm -rf {{}} +',
        ),
        "postrm": _script(
            f"if {systemd}; then",
            "  systemctl daemon-reload",
            "fi",
            "# The daemon wrote them, and the plugin's code is gone: a runtime would call it for every pod.",
            'if [ "$1" = purge ]; then',
            f'  rm -f "$DPKG_ROOT{CNI_CONFIG}" "$DPKG_ROOT{CNI_PLUGIN}"',
            "fi",
        ),
    }


def _script(*lines: str) -> str:
    return "".join(f"{line}\n" for line in ("#!/bin/sh", "set -e", *lines))


def changelog(version: str, stamp: str) -> str:
    """The package's Debian changelog, which points to the project's. `stamp`: RFC 2822."""
    return f"""{NAME} ({version}) unstable; urgency=medium

  * Made by `nodewright package`; CHANGELOG.md of the project says more.

 -- nodewright <nodewright@localhost>  {stamp}
"""


def copyright_file() -> str:
    """The Debian copyright file; the licences of third parties are beside their code."""
    return f"""Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: {NAME}

Files: *
Copyright: the nodewright authors
License: Apache-2.0
 On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.

Files: {SITE.lstrip("/")}/*
Copyright: their authors, as their *.dist-info directories say
License: as-in-dist-info
 Each package in this directory brings its licence in its *.dist-info directory.
"""
