"""The controls for worker nodes of the CIS Kubernetes Benchmark (4.1 to 4.3), each judged from a node's facts. Pure.

Numbers and titles are those of versions 1.10 to 1.12 (https://www.cisecurity.org/benchmark/kubernetes). What is judged
is the configuration that the running kubelet has, not the files that it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controlplane.doctor.model import NodeFacts
from controlplane.doctor.plan import cis_files, cis_kubelet
from controlplane.doctor.plan.verdict import Verdict

Judge = Callable[[NodeFacts], Verdict]


@dataclass(frozen=True, slots=True)
class ControlFinding:
    """One control on one node. `status`: pass, fail, or unknown (it could not be judged); `fix`: what to do.

    `source`: where the kubelet's configuration was read.
    """

    node: str
    control: str
    title: str
    status: str
    finding: str
    fix: str = ""
    source: str = ""


CONTROLS: Mapping[str, tuple[str, Judge]] = {
    "4.1.1": (
        "Ensure that the kubelet service file permissions are set to 600 or more restrictive",
        cis_files.starts_are_private,
    ),
    "4.1.2": ("Ensure that the kubelet service file ownership is set to root:root", cis_files.starts_are_root_s),
    "4.1.3": (
        "If proxy kubeconfig file exists ensure permissions are set to 600 or more restrictive",
        cis_files.proxy_kubeconfig_is_private,
    ),
    "4.1.4": (
        "If proxy kubeconfig file exists ensure ownership is set to root:root",
        cis_files.proxy_kubeconfig_is_root_s,
    ),
    "4.1.5": (
        "Ensure that the --kubeconfig kubelet.conf file permissions are set to 600 or more restrictive",
        cis_files.kubeconfig_is_private,
    ),
    "4.1.6": (
        "Ensure that the --kubeconfig kubelet.conf file ownership is set to root:root",
        cis_files.kubeconfig_is_root_s,
    ),
    "4.1.7": (
        "Ensure that the certificate authorities file permissions are set to 644 or more restrictive",
        cis_files.authorities_are_protected,
    ),
    "4.1.8": (
        "Ensure that the client certificate authorities file ownership is set to root:root",
        cis_files.authorities_are_root_s,
    ),
    "4.1.9": (
        "If the kubelet config.yaml configuration file is being used validate permissions set to 600 or more"
        " restrictive",
        cis_files.configs_are_private,
    ),
    "4.1.10": (
        "If the kubelet config.yaml configuration file is being used validate file ownership is set to root:root",
        cis_files.configs_are_root_s,
    ),
    "4.2.1": ("Ensure that the --anonymous-auth argument is set to false", cis_kubelet.no_anonymous),
    "4.2.2": (
        "Ensure that the --authorization-mode argument is not set to AlwaysAllow",
        cis_kubelet.authorizes,
    ),
    "4.2.3": ("Ensure that the --client-ca-file argument is set as appropriate", cis_kubelet.has_client_ca),
    "4.2.4": (
        "Verify that if defined, the --read-only-port argument is set to 0",
        cis_kubelet.no_read_only_port,
    ),
    "4.2.5": (
        "Ensure that the --streaming-connection-idle-timeout argument is not set to 0",
        cis_kubelet.streams_time_out,
    ),
    "4.2.6": (
        "Ensure that the --make-iptables-util-chains argument is set to true",
        cis_kubelet.makes_chains,
    ),
    "4.2.7": ("Ensure that the --hostname-override argument is not set", cis_kubelet.own_hostname),
    "4.2.8": (
        "Ensure that the eventRecordQPS argument is set to a level which ensures appropriate event capture",
        cis_kubelet.events_are_limited,
    ),
    "4.2.9": (
        "Ensure that the --tls-cert-file and --tls-private-key-file arguments are set as appropriate",
        cis_kubelet.serves_tls,
    ),
    "4.2.10": ("Ensure that the --rotate-certificates argument is not set to false", cis_kubelet.rotates),
    "4.2.11": (
        "Verify that the RotateKubeletServerCertificate argument is set to true",
        cis_kubelet.rotates_serving,
    ),
    "4.2.12": (
        "Ensure that the Kubelet only makes use of Strong Cryptographic Ciphers",
        cis_kubelet.ciphers_are_strong,
    ),
    "4.2.13": ("Ensure that a limit is set on pod PIDs", cis_kubelet.limits_pids),
    "4.2.14": ("Ensure that the --seccomp-default parameter is set to true", cis_kubelet.seccomp_by_default),
    "4.3.1": (
        "Ensure that the kube-proxy metrics service is bound to localhost",
        cis_kubelet.proxy_metrics_stay_here,
    ),
}


def unjudged(node: str, why: str) -> tuple[ControlFinding, ...]:
    """Every control of a node of which nothing is known."""
    return tuple(ControlFinding(node, control, title, "unknown", why) for control, (title, _) in CONTROLS.items())


def judge(facts: NodeFacts) -> tuple[ControlFinding, ...]:
    """Every control, in the benchmark's order."""
    found = []
    for control, (title, judged) in CONTROLS.items():
        verdict = judged(facts)
        found.append(
            ControlFinding(facts.node, control, title, verdict.status, verdict.finding, verdict.fix, facts.source)
        )
    return tuple(found)
