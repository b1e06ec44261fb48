"""The resolv.conf of a pod as CRI DNSConfig. Follows pkg/kubelet/network/dns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.common.model.pod_settings import PodDefaults
from agent.common.model.pods import Pod
from nodelib.json_values import Json

_MAX_SERVERS = 3
_MAX_SEARCHES = 32
_MAX_SEARCH_CHARS = 2048
_MAX_DOMAIN_CHARS = 253


@dataclass(frozen=True, slots=True)
class Dns:
    """One resolv.conf; `warnings`: (event reason, message) about what was left out of it."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()

    def as_cri(self) -> Json:
        return {"servers": list(self.servers), "searches": list(self.searches), "options": list(self.options)}


def parse_resolv_conf(text: str) -> Dns:
    """resolv.conf(5): nameservers accumulate, the last search line wins, options merge by name."""
    servers: list[str] = []
    searches: list[str] = []
    options: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split()
        if not fields or fields[0].startswith(("#", ";")):
            continue
        if fields[0] == "nameserver" and len(fields) > 1:
            servers.append(fields[1])
        elif fields[0] == "search":
            searches = [domain.removesuffix(".") for domain in fields[1:] if domain != "."]
        elif fields[0] == "options":
            options |= {option.split(":")[0]: option for option in fields[1:]}
    return Dns(tuple(servers), tuple(searches), tuple(options.values()))


def pod_dns(pod: Pod, settings: PodDefaults, host: Dns, host_ips: tuple[str, ...] = ()) -> Dns:
    """DNS of `pod`; `host` is the parsed resolv.conf of the node (empty when the setting is empty)."""
    policy = pod.spec.get("dnsPolicy") or "ClusterFirst"
    cluster = policy == "ClusterFirstWithHostNet" or (
        policy not in ("None", "Default") and not (policy == "ClusterFirst" and pod.host_network)
    )
    warnings: tuple[tuple[str, str], ...] = ()
    if policy == "None":
        base = Dns()
    elif cluster and settings.cluster_dns:
        base = Dns(settings.cluster_dns, _cluster_searches(pod, settings.cluster_domain, host), ("ndots:5",))
    else:
        base = host if settings.resolv_conf else _no_resolver(host_ips)
        if cluster:
            missing = (
                f'the agent has no cluster DNS address and cannot create pods with the "{policy}" policy as asked;'
                ' it falls back to "Default". Set --cluster-dns (clusterDNS).'
            )
            warnings = (("MissingClusterDNS", missing),)
    return _limited(replace(_merged(base, pod.spec.get("dnsConfig") or {}), warnings=warnings))


def _cluster_searches(pod: Pod, domain: str, host: Dns) -> tuple[str, ...]:
    if not domain:
        return host.searches
    return _unique((f"{pod.namespace}.svc.{domain}", f"svc.{domain}", domain, *host.searches))


def _no_resolver(host_ips: tuple[str, ...]) -> Dns:
    servers = tuple("::1" if ":" in address else "127.0.0.1" for address in host_ips)
    return Dns(servers or ("127.0.0.1",), (".",))


def _merged(base: Dns, config: Json) -> Dns:
    options = {option.partition(":")[0]: option.partition(":")[2] for option in base.options}
    options |= {option.get("name", ""): option.get("value") or "" for option in config.get("options") or []}
    return Dns(
        _unique((*base.servers, *(config.get("nameservers") or []))),
        _unique((*base.searches, *(config.get("searches") or []))),
        tuple(f"{name}:{value}" if value else name for name, value in options.items() if name),
    )


def _limited(dns: Dns) -> Dns:
    warnings = list(dns.warnings)
    servers = dns.servers[:_MAX_SERVERS]
    if len(servers) < len(dns.servers):
        warnings.append(
            (
                "DNSConfigForming",
                "Nameserver limits were exceeded, some nameservers have been omitted, "
                f"the applied nameserver line is: {' '.join(servers)}",
            )
        )
    searches = [domain for domain in dns.searches[:_MAX_SEARCHES] if len(domain) <= _MAX_DOMAIN_CHARS]
    while len(" ".join(searches)) > _MAX_SEARCH_CHARS:
        searches.pop()
    if len(searches) < len(dns.searches):
        warnings.append(
            (
                "DNSConfigForming",
                "Search Line limits were exceeded, some search paths have been omitted, "
                f"the applied search line is: {' '.join(searches)}",
            )
        )
    return Dns(servers, tuple(searches), dns.options, tuple(warnings))


def _unique(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
