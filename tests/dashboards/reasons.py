"""Why a query has no data, and why a metric of upstream's is not here or is different: patterns of names, of which the
first that fits counts. Each difference needs one (tests/unit/test_metrics_page.py)."""

from __future__ import annotations

_GO = "the runtime of Go programs; of this process there are `process_*`"
_LIBRARY = "internals of a library that these daemons do not have: client-go, apiserver, component-base"
_RARE = "has a series once it happened"
_MACHINE = "hardware that nodes do not have, or that the Node object already shows"
_ONE_PATH = "events and lists are one path here, without a queue whose events are lost"
_WITH_POLICY = "shown while the static policy is on"

SILENT = (
    ("*go_goroutines*", "a Python process has no goroutines"),
    ("*kubelet_node_config_error*", "gone from upstream with dynamic kubelet configuration (1.24)"),
    ("*storage_operation_errors_total*", "gone from upstream: `storage_operation_duration_seconds` has a `status`"),
    ('*code=~"3..*', "the API server redirects nobody"),
    ('*code=~"5..*', "the API server was well"),
    ('*kube-proxy", verb="*', "a proxy asks once when it starts, and then watches"),
    ("*container_fs_*", "the kernel of the measured machine counts no block I/O of these containers"),
    ("*kubelet_evictions*", "no pod was evicted"),
    ("*server_ttl*", "the serving certificate is not rotated by the cluster (`serverTLSBootstrap`), so it is +Inf"),
    ("*server_expiration*", "the serving certificate is not rotated by the cluster (`serverTLSBootstrap`)"),
    ("*kubelet_volume_stats_*", "no volume was measured yet"),
    ("*", "nothing of that kind happened while it was measured"),
)
MISSING = (
    ("go_*", _GO),
    ("process_network_*", _GO),
    ("process_virtual_memory_max_bytes", _GO),
    ("aggregator_*", _LIBRARY),
    ("apiserver_*", _LIBRARY),
    ("cardinality_*", _LIBRARY),
    ("disabled_metrics_total", _LIBRARY),
    ("hidden_metrics_total", _LIBRARY),
    ("registered_metrics_total", _LIBRARY),
    ("workqueue_*", _LIBRARY),
    ("rest_client_*", _LIBRARY),
    ("authentication_*", _LIBRARY),
    ("authorization_*", _LIBRARY),
    (
        "plugin_manager_*",
        "plugins are connected as soon as their socket appears; there is no state of the world to count",
    ),
    ("csi_operations_seconds", "`storage_operation_duration_seconds` has what a volume's mount takes as a whole"),
    (
        "volume_operation_total_seconds",
        "`storage_operation_duration_seconds` has what a volume's mount takes as a whole",
    ),
    (
        "kubernetes_feature_enabled",
        "[every gate and its default](compatibility.md) is fixed for a version; `/flagz` shows what is set",
    ),
    ("kubelet_evented_pleg_*", "events and lists are one path here, without a fall-back to count"),
    ("kubelet_pleg_discard_events", _ONE_PATH),
    ("kubelet_pleg_pod_relist_duration_seconds", _ONE_PATH),
    ("kubelet_node_startup_*", "the start is in the log and the traces; no phase of it takes longer than a second"),
    ("kubelet_imagemanager_*", "records of pulls are files in one folder; `nodewright images` shows them"),
    ("kubelet_image_pull_duration_seconds", _RARE),
    ("kubelet_first_network_pod_start_sli_duration_seconds", "the first pod starts like any other here"),
    ("kubelet_cpu_manager_*", _WITH_POLICY),
    ("kubelet_memory_manager_*", _WITH_POLICY),
    ("kubelet_orphan_pod_cleaned_volumes*", "a sweep removes what pods that are gone left on disk, and logs each"),
    ("force_cleaned_*", "volumes are found in the pod's directory; nothing is reconstructed"),
    ("reconstruct_*", "volumes are found in the pod's directory; nothing is reconstructed"),
    ("kubelet_metrics_provider", "there is one provider: the kubelet itself reads the cgroups"),
    (
        "kubelet_resource_manager_*",
        "of the gate PodLevelResourceManagers, which is off by default and [absent here](compatibility.md)",
    ),
    ("csi_node_storage_health_status", "of the gate CSIVolumeHealth, which is [absent here](compatibility.md)"),
    ("kubelet_started_host_process_containers_*", "host process containers are of Windows"),
    (
        "kubelet_websocket_streaming_requests_total",
        "counts streams that the kubelet translates; for this node the API server does, as before 1.36",
    ),
    (
        "kubelet_certificate_manager_server_rotation_seconds",
        "how long a certificate lasted; `kubelet_certificate_manager_server_ttl_seconds` says how long it will",
    ),
    ("kubelet_credential_provider_config_info", "the file is read once, when the kubelet starts"),
    ("scrape_error", "hidden upstream since 1.29; `resource_scrape_error` is there"),
    ("kubelet_runtime_operations_errors_total", _RARE),
    ("kubelet_run_podsandbox_errors_total", _RARE),
    ("kubelet_started_containers_errors_total", _RARE),
    ("kubelet_started_containers_total", _RARE),
    (
        "dra_node_*_skips_total",
        "every driver is asked to prepare its claims: DRAOptionalNodeOperations is alpha and absent",
    ),
    ("kubeproxy_*", _RARE),
    ("cadvisor_version_info", "there is no cAdvisor"),
    ("container_cpu_load_*", "needs a taskstats reader, which upstream's kubelet switches off as well"),
    ("container_tasks_state", "needs a taskstats reader, which upstream's kubelet switches off as well"),
    ("container_cpu_cfs_burst_*", "the kubelet sets no burst, so that these are 0"),
    ("container_creation_time_seconds", "the same as `container_start_time_seconds`"),
    ("container_health_state", "the health check of Docker's images, which the kubelet ignores"),
    ("container_fs_*", _RARE),
    ("container_blkio_*", _RARE),
    ("container_*", _RARE),
    ("machine_*", _MACHINE),
)
# Reasons that may be given for what ours serves, too: why there was no series of it.
WAITS = (_RARE, _WITH_POLICY)
LABELS = (
    ("kubernetes_build_info", "the other labels describe a Go program's build"),
    ("machine_*", "the Node's status.nodeInfo has these names of the machine"),
    ("container_memory_failures_total", "figures of a cgroup are those of all below it"),
    ("*", "other things happened while it was measured"),
)
OWN = (
    ("nodewright_connections_*", "pods that fill the node's [table of connections](limits.md#connections)"),
    ("nodewright_*", "spans of [traces](traces.md)"),
    (
        "kubelet_certificate_manager_server_ttl_seconds",
        "upstream's shows it while the cluster rotates the certificate; +Inf here otherwise",
    ),
    ("kubelet_server_expiration_renew_errors", "upstream's shows it while the cluster rotates the certificate"),
    ("kubelet_container_aligned_*", "upstream's shows it while a manager's policy is on; 0 here otherwise"),
    ("container_pressure_*", "pressure stall information, which upstream shows on cgroup v2 only"),
    ("*", "upstream's has a series once it happened"),
)
