"""The files that `install` puts on a host, so that kubeadm finds our agent where it expects a kubelet. Pure.

The units follow kubeadm's packages (kubelet.service with 10-kubeadm.conf) and add readiness and a watchdog.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.host.plan import hardening

RECORD = "/etc/nodewright/installed.json"
SYSCTLS: Mapping[str, str] = {
    "net.ipv4.ip_forward": "1",
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.bridge.bridge-nf-call-ip6tables": "1",
}
MODULES = ("overlay", "br_netfilter")
ENABLED = ("kubelet.service",)  # the proxy's unit is for clusters without a kube-proxy DaemonSet

_KUBELET = """[Unit]
Description=nodewright: the node agent in the place of the kubelet
Wants=network-online.target
After=network-online.target containerd.service

[Service]
Type=notify
ExecStart={commands}/kubelet
# A TLS bootstrap may wait for its approval.
TimeoutStartSec=infinity
WatchdogSec=90
Restart=always
RestartSec=2
# Pods live in cgroups of their own. The process that keeps the connection for starts open must outlive the agent by
# seconds (agent/runtime/edge/starts.py): whatever is ended with it costs a container that is just starting a restart.
KillMode=process
OOMScoreAdjust=-999
{confinement}
[Install]
WantedBy=multi-user.target
"""
# Before `kubeadm init` or `join` there is no configuration; upstream's unit fails and restarts until there is.
_KUBEADM = """[Unit]
ConditionPathExists=/var/lib/kubelet/config.yaml

[Service]
# kubeadm leaves its file readable for all (CIS 4.1.9).
ExecStartPre=-/bin/chmod 600 /var/lib/kubelet/config.yaml
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart={commands}/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""
_PROXY = """[Unit]
Description=nodewright: the service proxy in the place of kube-proxy
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStart={commands}/kube-proxy --config=/etc/kubernetes/nodewright-proxy.yaml
TimeoutStartSec=infinity
WatchdogSec=90
Restart=always
RestartSec=2
OOMScoreAdjust=-999
{confinement}
[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the files go, for an administrator or in a package, and the name of the kubelet's drop-in."""

    commands: str = "/usr/local/bin"
    units: str = "/etc/systemd/system"
    drop_in: str = "10-kubeadm.conf"
    proxy: str = hardening.PROXY.format_map(hardening.CHECKOUT)  # its confinement


@dataclass(frozen=True, slots=True)
class HostFile:
    """One file: its path on the host, its text and its mode."""

    path: str
    text: str
    mode: int = 0o644

    @property
    def digest(self) -> str:
        return digest(self.text.encode())


def digest(content: bytes) -> str:
    """The hash by which `uninstall` recognizes a file that nobody has changed."""
    return hashlib.sha256(content).hexdigest()


def host_files(
    project: str, environment: Mapping[str, str] | None = None, layout: Layout | None = None
) -> tuple[HostFile, ...]:
    """Every file, for the sources in `project`. In `environment` the commands find the interpreter and its packages."""
    exports = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in sorted((environment or {}).items()))
    commands = {
        "kubelet": f"{project}/bin/kubelet",
        "kube-proxy": f"{project}/bin/kube-proxy",
        "nodewright": f"{project}/nodewright",
    }
    layout = layout or Layout()
    units, place = layout.units, {"commands": layout.commands}
    return (
        *(
            HostFile(f"{layout.commands}/{name}", f'#!/bin/sh\n{exports}exec {shlex.quote(path)} "$@"\n', 0o755)
            for name, path in commands.items()
        ),
        HostFile(f"{units}/kubelet.service", _KUBELET.format_map({**place, "confinement": hardening.AGENT}), 0o600),
        HostFile(f"{units}/kubelet.service.d/{layout.drop_in}", _KUBEADM.format_map(place), 0o600),
        HostFile(f"{units}/nodewright-proxy.service", _PROXY.format_map({**place, "confinement": layout.proxy}), 0o600),
        HostFile("/etc/sysctl.d/99-nodewright.conf", "".join(f"{key} = {value}\n" for key, value in SYSCTLS.items())),
        HostFile("/etc/modules-load.d/nodewright.conf", "".join(f"{name}\n" for name in MODULES)),
    )
