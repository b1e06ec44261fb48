"""A query for each panel of kubernetes-mixin's dashboards of kubelet, pods, proxy and nodes, and for the rules below.

Names of dashboards, panels and rules are the mixin's; the queries are ours, on the same metrics and labels. They name
no cluster, since there is one, and look back half a minute, so that a test need not wait for five.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

KUBELET, PROXY, POD, NODE = "Kubelet", "Proxy", "Compute Resources / Pod", "Compute Resources / Node (Pods)"
NODES, NETWORK, VOLUMES = "Compute Resources / Nodes Overview", "Networking / Pod", "Persistent Volumes"
RULES, ALERTS = "rules", "alerts"
WINDOW = "30s"


@dataclass(frozen=True, slots=True)
class Query:
    """One target of a panel."""

    dashboard: str
    panel: str
    text: str


# Nothing but a failure gives these data, and no Python process has goroutines: neither is for or against a node.
_INCIDENTAL = ('code=~"3..', 'code=~"4..', 'code=~"5..', "go_goroutines", "_errors", "kubelet_evictions")


def is_incidental(query: Query) -> bool:
    """Whether it has data only where something failed, or for a Go program."""
    return any(word in query.text for word in _INCIDENTAL)


@dataclass(frozen=True, slots=True)
class Rule:
    """A recording rule. Only Prometheus's own are evaluated there; the page counts each as a query, too."""

    record: str
    text: str
    labels: tuple[tuple[str, str], ...] = ()


def _rate(metric: str, job: str, more: str = "") -> str:
    return f'rate({metric}{{job="{job}"{more}}}[{WINDOW}])'


def _sum_rate(metric: str, job: str, by: str = "", more: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} ({_rate(metric, job, more)})"


def _p99(metric: str, job: str, by: str, more: str = "") -> str:
    return f"histogram_quantile(0.99, {_sum_rate(f'{metric}_bucket', job, f'{by}, le', more)})"


def _kubelet() -> Iterator[tuple[str, str]]:
    job = "kubelet"
    yield "Running Kubelets", 'sum(kubelet_node_name{job="kubelet"})'
    yield "Running Pods", 'sum(kubelet_running_pods{job="kubelet"})'
    yield "Running Containers", 'sum(kubelet_running_containers{job="kubelet", container_state="running"})'
    for panel, state in (("Actual Volume Count", "actual"), ("Desired Volume Count", "desired")):
        yield panel, f'sum(volume_manager_total_volumes{{job="kubelet", state="{state}_state_of_world"}})'
    yield "Config Error Count", _sum_rate("kubelet_node_config_error", job)
    operation = "operation_type, instance"
    yield "Operation Rate", _sum_rate("kubelet_runtime_operations_total", job, operation)
    yield "Operation Error Rate", _sum_rate("kubelet_runtime_operations_errors_total", job, operation)
    yield "Operation Duration 99th quantile", _p99("kubelet_runtime_operations_duration_seconds", job, operation)
    for what in ("pod_start", "pod_worker"):
        yield "Pod Start Rate", _sum_rate(f"kubelet_{what}_duration_seconds_count", job, "instance")
        yield "Pod Start Duration", _p99(f"kubelet_{what}_duration_seconds", job, "instance")
    storage = "instance, operation_name, volume_plugin"
    yield "Storage Operation Rate", _sum_rate("storage_operation_duration_seconds_count", job, storage)
    yield "Storage Operation Error Rate", _sum_rate("storage_operation_errors_total", job, storage)
    yield "Storage Operation Duration 99th quantile", _p99("storage_operation_duration_seconds", job, storage)
    yield "Cgroup manager operation rate", _sum_rate("kubelet_cgroup_manager_duration_seconds_count", job, operation)
    yield "Cgroup manager 99th quantile", _p99("kubelet_cgroup_manager_duration_seconds", job, operation)
    yield "PLEG relist rate", _sum_rate("kubelet_pleg_relist_duration_seconds_count", job, "instance")
    yield "PLEG relist interval", _p99("kubelet_pleg_relist_interval_seconds", job, "instance")
    yield "PLEG relist duration", _p99("kubelet_pleg_relist_duration_seconds", job, "instance")
    yield from _requests("RPC rate", job)
    yield "Request duration 99th quantile", _p99("rest_client_request_duration_seconds", job, "instance, verb")
    yield from _process(job)


def _proxy() -> Iterator[tuple[str, str]]:
    job = "kube-proxy"
    yield "Up", 'sum(up{job="kube-proxy"})'
    yield "Rules Sync Rate", _sum_rate("kubeproxy_sync_proxy_rules_duration_seconds_count", job)
    yield "Rules Sync Latency 99th Quantile", _p99("kubeproxy_sync_proxy_rules_duration_seconds", job, "instance")
    yield "Network Programming Rate", _sum_rate("kubeproxy_network_programming_duration_seconds_count", job)
    programming = _p99("kubeproxy_network_programming_duration_seconds", job, "instance")
    yield "Network Programming Latency 99th Quantile", programming
    yield from _requests("Kube API Request Rate", job)
    for word, verb in (("Post", "POST"), ("Get", "GET")):
        took = _p99("rest_client_request_duration_seconds", job, "verb", f', verb="{verb}"')
        yield f"{word} Request Latency 99th Quantile", took
    yield from _process(job)


def _requests(panel: str, job: str) -> Iterator[tuple[str, str]]:
    for first in "2345":
        yield panel, _sum_rate("rest_client_requests_total", job, more=f', code=~"{first}.."')


def _process(job: str) -> Iterator[tuple[str, str]]:
    yield "Memory", f'process_resident_memory_bytes{{job="{job}"}}'
    yield "CPU usage", _rate("process_cpu_seconds_total", job)
    yield "Goroutines", f'go_goroutines{{job="{job}"}}'


_CPU = "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m"
_ASKED = "cluster:namespace:pod_{}:active:kube_pod_container_resource_{}"
_MEMORY = "node_namespace_pod_container:container_{}"
_CONTAINERS = 'namespace!="", pod!="", container!=""'


def _of(record: str, by: str, matching: str = "") -> str:
    """What a record has of each container once, summed."""
    return f"sum by ({by}) (max by (namespace, pod, container) ({record}{{{matching}}}))"


def _pod() -> Iterator[tuple[str, str]]:
    used, by = _of(_CPU, "container"), "container"
    yield "CPU Usage", used
    for panel, resource in (("CPU Usage", "cpu"), ("Memory Usage (WSS)", "memory")):
        for side in ("requests", "limits"):
            yield panel, f'sum(kube_pod_container_resource_{side}{{resource="{resource}"}})'
    periods = [_sum_rate(f"container_cpu_cfs_{one}_total", "cadvisor", by, f", {_CONTAINERS}") for one in _PERIODS]
    yield "CPU Throttling", " / ".join(periods)
    working_set = _of("container_memory_working_set_bytes", by, f'job="cadvisor", {_CONTAINERS}, image!=""')
    yield "Memory Usage (WSS)", working_set
    for panel, resource, use in (("CPU Quota", "cpu", used), ("Memory Quota", "memory", working_set)):
        yield panel, use
        for side in ("requests", "limits"):
            asked = _of(_ASKED.format(resource, side), by)
            yield panel, asked
            yield panel, f"{use} / {asked}"
    for kind in ("rss", "cache", "swap"):
        yield "Memory Quota", _of(f"container_memory_{kind}", by, f'job="cadvisor", {_CONTAINERS}')
    yield from _traffic("cadvisor")
    yield from _storage()


_PERIODS = ("throttled_periods", "periods")


def _traffic(job: str = "") -> Iterator[tuple[str, str]]:
    matching = f'job="{job}", ' if job else ""
    matching += 'namespace!="", pod!=""'
    for panel, what in (
        ("Receive Bandwidth", "receive_bytes"),
        ("Transmit Bandwidth", "transmit_bytes"),
        ("Rate of Received Packets", "receive_packets"),
        ("Rate of Transmitted Packets", "transmit_packets"),
        ("Rate of Received Packets Dropped", "receive_packets_dropped"),
        ("Rate of Transmitted Packets Dropped", "transmit_packets_dropped"),
    ):
        yield panel, f"sum by (pod) (rate(container_network_{what}_total{{{matching}}}[{WINDOW}]))"


def _storage() -> Iterator[tuple[str, str]]:
    for suffix, unit in (("total", "IOPS"), ("bytes_total", "ThroughPut")):
        sums = []
        for way in ("reads", "writes"):
            of_pods, of_containers = (
                _sum_rate(f"container_fs_{way}_{suffix}", "cadvisor", by, f', device!="", {_CONTAINERS}')
                for by in ("pod", "container")
            )
            yield f"{unit} (Pod)", of_pods
            yield "Current Storage IO", of_containers
            sums.append(of_containers)
        yield f"{unit} (Containers)", " + ".join(sums)
        yield "Current Storage IO", " + ".join(sums)


def _node() -> Iterator[tuple[str, str]]:
    by = "pod"
    panels = (("cpu", ("CPU Usage",)), ("memory", ("Memory Usage (w/cache)", "Memory Usage (w/o cache)")))
    for resource, names in panels:
        for name in names:
            yield name, f'sum(kube_node_status_capacity{{resource="{resource}"}})'
            yield name, f'sum(kube_node_status_allocatable{{resource="{resource}"}})'
    used = _of(_CPU, by)
    working_set = _of(_MEMORY.format("memory_working_set_bytes"), by)
    yield "CPU Usage", used
    yield "Memory Usage (w/cache)", working_set
    yield "Memory Usage (w/o cache)", _of(_MEMORY.format("memory_rss"), by)
    for panel, resource, use in (("CPU Quota", "cpu", used), ("Memory Quota", "memory", working_set)):
        yield panel, use
        for side in ("requests", "limits"):
            asked = _of(_ASKED.format(resource, side), by)
            yield panel, asked
            yield panel, f"{use} / {asked}"
    for kind in ("rss", "cache", "swap"):
        yield "Memory Quota", _of(_MEMORY.format(f"memory_{kind}"), by)


def _nodes() -> Iterator[tuple[str, str]]:
    yield "Node & Pod Count", 'sum(kubelet_running_pods{job="kubelet"})'
    for panel, resource, record in (
        ("CPU", "cpu", _CPU),
        ("Memory", "memory", _MEMORY.format("memory_working_set_bytes")),
    ):
        has = f'kube_node_status_allocatable{{resource="{resource}"}}'
        yield f"{panel} Usage", f"sum({has})"
        yield f"{panel} Usage", f"sum({_ASKED.format(resource, 'requests')})"
        yield f"{panel} Usage", f"sum({record})"
        yield f"{panel} Utilization per Node", f"sum by (node) ({record}) / sum by (node) ({has})"


def _network() -> Iterator[tuple[str, str]]:
    for panel, what in (("Received", "receive"), ("Transmitted", "transmit")):
        yield f"Current Rate of Bytes {panel}", f'sum(rate(container_network_{what}_bytes_total{{pod!=""}}[{WINDOW}]))'
    yield from _traffic()


def _volumes() -> Iterator[tuple[str, str]]:
    def of(what: str) -> str:
        return f'topk(1, kubelet_volume_stats_{what}{{job="kubelet", namespace!="", persistentvolumeclaim!=""}})'

    yield "Volume Space Usage", f"{of('capacity_bytes')} - {of('available_bytes')}"
    yield "Volume Space Usage", of("available_bytes")
    yield "Volume Space Usage", f"({of('capacity_bytes')} - {of('available_bytes')}) / {of('capacity_bytes')}"
    yield "Volume inodes Usage", of("inodes_used")
    yield "Volume inodes Usage", f"{of('inodes')} - {of('inodes_used')}"
    yield "Volume inodes Usage", f"{of('inodes_used')} / {of('inodes')}"


def _alerts() -> Iterator[tuple[str, str]]:
    """What an alert compares with its limit: the alert itself has data only when something is wrong."""
    node = 'on (instance) group_left (node) max by (instance, node) (kubelet_node_name{job="kubelet"})'
    running = f'max by (instance) (kubelet_running_pods{{job="kubelet"}} > 1) * {node}'
    yield "KubeletTooManyPods", f'{running} / on (node) group_left () kube_node_status_capacity{{resource="pods"}}'
    yield "KubeNodeEviction", f"{_sum_rate('kubelet_evictions', 'kubelet', 'eviction_signal, instance')} * {node}"
    yield "KubeletPlegDurationHigh", f'{PLEG}{{quantile="0.99"}}'
    yield (
        "KubeletPodStartUpLatencyHigh",
        f"{_p99('kubelet_pod_worker_duration_seconds', 'kubelet', 'instance')} * {node}",
    )
    yield "KubeletClientCertificateExpiration", 'kubelet_certificate_manager_client_ttl_seconds{job="kubelet"}'
    yield "KubeletServerCertificateExpiration", 'kubelet_certificate_manager_server_ttl_seconds{job="kubelet"}'
    for name, metric in (
        ("KubeletClientCertificateRenewalErrors", "kubelet_certificate_manager_client_expiration_renew_errors"),
        ("KubeletServerCertificateRenewalErrors", "kubelet_server_expiration_renew_errors"),
    ):
        yield name, f"increase({metric}[{WINDOW}])"
    yield "KubeletDown", 'up{job="kubelet"} == 1'
    yield "KubeProxyDown", 'up{job="kube-proxy"} == 1'
    held = 'kubelet_volume_stats_{}{{job="kubelet"}}'
    yield "KubePersistentVolumeFillingUp", f"{held.format('available_bytes')} / {held.format('capacity_bytes')}"
    yield "KubePersistentVolumeFillingUp", held.format("used_bytes")
    yield "KubePersistentVolumeInodesFillingUp", f"{held.format('inodes_free')} / {held.format('inodes')}"
    yield "KubePersistentVolumeInodesFillingUp", held.format("inodes_used")
    throttled = _sum_rate("container_cpu_cfs_throttled_periods_total", "cadvisor", "pod, container", ', container!=""')
    periods = _sum_rate("container_cpu_cfs_periods_total", "cadvisor", "pod, container", ', container!=""')
    yield "CPUThrottlingHigh", f"{throttled} / {periods}"


PLEG = "node_quantile:kubelet_pleg_relist_duration_seconds:histogram_quantile"
_ON_NODE = '* on (namespace, pod) group_left (node) topk by (namespace, pod) (1, kube_pod_info{node!=""})'
_ALIVE = 'max by (namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)'


def _rules() -> Iterator[Rule]:
    used = 'container_cpu_usage_seconds_total{job="cadvisor", image!=""}'
    for name, rate in (("sum_rate5m", "rate"), ("sum_irate", "irate")):
        record = _CPU.replace("sum_rate5m", name)
        yield Rule(record, f"sum by (namespace, pod, container) ({rate}({used}[{WINDOW}])) {_ON_NODE}")
    for what in ("memory_working_set_bytes", "memory_rss", "memory_cache", "memory_swap"):
        yield Rule(_MEMORY.format(what), f'container_{what}{{job="cadvisor", image!=""}} {_ON_NODE}')
    for resource in ("cpu", "memory"):
        for side in ("requests", "limits"):
            asked = f'kube_pod_container_resource_{side}{{resource="{resource}"}}'
            yield Rule(_ASKED.format(resource, side), f"{asked} * on (namespace, pod) group_left () {_ALIVE}")
    for quantile in ("0.99", "0.9", "0.5"):
        took = _sum_rate("kubelet_pleg_relist_duration_seconds_bucket", "kubelet", "instance, le")
        node = 'on (instance) group_left (node) max by (instance, node) (kubelet_node_name{job="kubelet"})'
        yield Rule(PLEG, f"histogram_quantile({quantile}, {took} * {node})", (("quantile", quantile),))


RECORDED: tuple[Rule, ...] = tuple(_rules())
QUERIES: tuple[Query, ...] = (
    *(Query(KUBELET, *one) for one in _kubelet()),
    *(Query(PROXY, *one) for one in _proxy()),
    *(Query(POD, *one) for one in _pod()),
    *(Query(NODE, *one) for one in _node()),
    *(Query(NODES, *one) for one in _nodes()),
    *(Query(NETWORK, *one) for one in _network()),
    *(Query(VOLUMES, *one) for one in _volumes()),
    *(Query(RULES, rule.record, rule.text) for rule in RECORDED),
    *(Query(ALERTS, *one) for one in _alerts()),
)
