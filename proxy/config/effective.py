"""The settings in force as a KubeProxyConfiguration, for /configz and --write-config-to. Pure.

It has every supported field with its value after defaulting; fields that are ignored are left out.
"""

from __future__ import annotations

from nodelib.json_values import Json
from proxy.config.file import API_VERSION
from proxy.config.settings import Listen, Settings

GROUP = API_VERSION.partition("/")[0]
_UNITS = (("h", 3600), ("m", 60))


def document(settings: Settings) -> Json:
    """The document that, given with --config, would configure the same proxy."""
    rules, conntrack, local = settings.rules, settings.conntrack, settings.local
    periods = {
        "syncPeriod": duration_text(rules.sync_period),
        "minSyncPeriod": duration_text(rules.min_sync_period),
    }
    masquerade = {"masqueradeBit": rules.masquerade_bit, "masqueradeAll": rules.masquerade_all}
    by_mode: Json = {"iptables": {**masquerade, **periods, "localhostNodePorts": rules.localhost_node_ports}}
    if settings.mode == "nftables":
        by_mode = {"nftables": {**masquerade, **periods}}
    return {
        "apiVersion": API_VERSION,
        "kind": "KubeProxyConfiguration",
        "featureGates": dict(settings.feature_gates),
        "mode": settings.mode,
        "hostnameOverride": settings.node_name,
        "clientConnection": {
            "kubeconfig": settings.kubeconfig,
            "qps": settings.requests.qps,
            "burst": settings.requests.burst,
        },
        "healthzBindAddress": _listen(settings.healthz),
        "metricsBindAddress": _listen(settings.metrics),
        "bindAddressHardFail": settings.bind_hard_fail,
        "clusterCIDR": ",".join(local.cluster_cidrs),
        "detectLocalMode": local.mode,
        "detectLocal": {"bridgeInterface": local.bridge, "interfaceNamePrefix": local.prefix},
        "nodePortAddresses": list(settings.node_port_addresses),
        "oomScoreAdj": settings.oom_score_adj,
        "logging": {
            "format": settings.log_format,
            "verbosity": settings.verbosity,
            "vmodule": [{"filePattern": name, "verbosity": number} for name, number in settings.vmodule],
        },
        **by_mode,
        "conntrack": {
            "maxPerCore": conntrack.max_per_core,
            "min": conntrack.minimum,
            "tcpEstablishedTimeout": duration_text(conntrack.tcp_established_timeout),
            "tcpCloseWaitTimeout": duration_text(conntrack.tcp_close_wait_timeout),
            "tcpBeLiberal": conntrack.tcp_be_liberal,
            "udpTimeout": duration_text(conntrack.udp_timeout),
            "udpStreamTimeout": duration_text(conntrack.udp_stream_timeout),
        },
    }


def duration_text(seconds: float) -> str:
    """As Go prints a time.Duration: "1h0m0s", "30s", "20ms"."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    text, left = "", seconds
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or text:
            text += f"{count:.0f}{unit}"
    return f"{text}{left:g}s"


def _listen(listen: Listen | None) -> str:
    if listen is None:
        return ""
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    return f"{host}:{listen.port}"
