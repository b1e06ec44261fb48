"""Host name, domain and /etc/hosts of a pod. Follows pkg/kubelet/kubelet_pods.go."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.common.model.pods import Pod
from nodelib.errors import Invalid
from nodelib.json_values import Json

_HEADER = "# Kubernetes-managed hosts file.\n"
_HEADER_HOST_NETWORK = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MAX_HOSTNAME = 63
_MAX_KERNEL_NAME = 64


def hostname_and_domain(pod: Pod, cluster_domain: str) -> tuple[str, str]:
    """(host name, domain or ""). Raises Invalid on a hostname or subdomain that DNS does not allow."""
    override = pod.spec.get("hostnameOverride")
    if override is not None:
        if len(override) > 253 or not all(_LABEL.fullmatch(part) for part in override.split(".")):
            raise _invalid(pod, "hostnameOverride", override, "a DNS subdomain")
        return _truncated(pod, override), ""
    hostname = pod.spec.get("hostname") or ""
    if hostname and not _LABEL.fullmatch(hostname):
        raise _invalid(pod, "hostname", hostname, "a DNS label")
    subdomain = pod.spec.get("subdomain") or ""
    if subdomain and not _LABEL.fullmatch(subdomain):
        raise _invalid(pod, "subdomain", subdomain, "a DNS label")
    domain = f"{subdomain}.{pod.namespace}.svc.{cluster_domain}" if subdomain else ""
    return _truncated(pod, hostname or pod.name), domain


def kernel_hostname(pod: Pod, cluster_domain: str) -> str:
    """The host name that uname shows inside the pod: the FQDN with setHostnameAsFQDN. Raises Invalid if too long."""
    hostname, domain = hostname_and_domain(pod, cluster_domain)
    if not domain or not pod.spec.get("setHostnameAsFQDN"):
        return hostname
    name = f"{hostname}.{domain}"
    if len(name) > _MAX_KERNEL_NAME:
        raise Invalid(
            "failed to construct FQDN from pod hostname and cluster domain, "
            f"FQDN {name} is too long ({_MAX_KERNEL_NAME} characters is the max, {len(name)} characters requested)",
            obj=f"pod {pod.full_name}",
            step="setHostnameAsFQDN",
            action="Choose a shorter hostname or subdomain.",
        )
    return name


def hosts_file(pod: Pod, ips: Sequence[str], cluster_domain: str, node_hosts: str) -> str | None:
    """The text of /etc/hosts; None while the pod has no address (no file is mounted then).

    `node_hosts` is the text of the node's own file, for pods on the host network.
    """
    aliases = _aliases(pod.spec.get("hostAliases") or [])
    if pod.host_network:
        return _HEADER_HOST_NETWORK + node_hosts + aliases
    if not ips:
        return None
    hostname, domain = hostname_and_domain(pod, cluster_domain)
    names = f"{hostname}.{domain}\t{hostname}" if domain else hostname
    return _HEADER + _LOCAL + "".join(f"{ip}\t{names}\n" for ip in ips) + aliases


def _aliases(aliases: list[Json]) -> str:
    if not aliases:
        return ""
    lines = ["\t".join([alias.get("ip", ""), *(alias.get("hostnames") or [])]) + "\n" for alias in aliases]
    return "\n# Entries added by HostAliases.\n" + "".join(lines)


def _truncated(pod: Pod, name: str) -> str:
    short = name if len(name) <= _MAX_HOSTNAME else name[:_MAX_HOSTNAME].rstrip("-.")
    if not short:
        raise _invalid(pod, "hostname", name, "a host name")
    return short


def _invalid(pod: Pod, field: str, value: str, wanted: str) -> Invalid:
    return Invalid(
        f"pod {field} {value!r} is not {wanted}",
        obj=f"pod {pod.full_name}",
        action="Use lower case letters, digits and hyphens, beginning and ending with a letter or digit.",
    )
