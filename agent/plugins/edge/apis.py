"""The kubelet's own plugin APIs on the wire: the .proto files of k8s.io/kubelet (pkg/apis).

Those of registration and CSI, which drivers of this project serve too, are in nodelib/plugin_apis.

tests/unit/agent/plugins/test_plugin_apis.py compares the fields and their numbers with the originals.
"""

from __future__ import annotations

from nodelib.plugin_apis.wire import Api

DEVICE_PLUGIN = Api(
    "v1beta1",
    """
    Empty:
    DevicePluginOptions: pre_start_required bool, get_preferred_allocation_available bool
    RegisterRequest: version string, endpoint string, resource_name string, options DevicePluginOptions
    NUMANode: ID int64
    TopologyInfo: nodes [NUMANode]
    Device: ID string, health string, topology TopologyInfo
    ListAndWatchResponse: devices [Device]
    PreStartContainerRequest: devices_ids [string]
    PreStartContainerResponse:
    ContainerPreferredAllocationRequest: available_deviceIDs [string], must_include_deviceIDs [string], \
allocation_size int32
    PreferredAllocationRequest: container_requests [ContainerPreferredAllocationRequest]
    ContainerPreferredAllocationResponse: deviceIDs [string]
    PreferredAllocationResponse: container_responses [ContainerPreferredAllocationResponse]
    ContainerAllocateRequest: devices_ids [string]
    AllocateRequest: container_requests [ContainerAllocateRequest]
    Mount: container_path string, host_path string, read_only bool
    DeviceSpec: container_path string, host_path string, permissions string
    CDIDevice: name string
    ContainerAllocateResponse: envs {string}, mounts [Mount], devices [DeviceSpec], annotations {string}, \
cdi_devices [CDIDevice]
    AllocateResponse: container_responses [ContainerAllocateResponse]
    rpc Registration.Register RegisterRequest Empty
    rpc DevicePlugin.GetDevicePluginOptions Empty DevicePluginOptions
    rpc DevicePlugin.ListAndWatch Empty stream ListAndWatchResponse
    rpc DevicePlugin.GetPreferredAllocation PreferredAllocationRequest PreferredAllocationResponse
    rpc DevicePlugin.Allocate AllocateRequest AllocateResponse
    rpc DevicePlugin.PreStartContainer PreStartContainerRequest PreStartContainerResponse
    """,
)

POD_RESOURCES = Api(
    "v1",
    """
    NUMANode: ID int64
    TopologyInfo: nodes [NUMANode]
    ContainerDevices: resource_name string, device_ids [string], topology TopologyInfo
    ContainerMemory: memory_type string, size uint64, topology TopologyInfo
    CDIDevice: name string
    ClaimResource: cdi_devices [CDIDevice], driver_name string, pool_name string, device_name string, share_id string
    DynamicResource: claim_name string @2, claim_namespace string, claim_resources [ClaimResource]
    ContainerResources: name string, devices [ContainerDevices], cpu_ids [int64], memory [ContainerMemory], \
dynamic_resources [DynamicResource]
    PodResources: name string, namespace string, containers [ContainerResources], cpu_ids [int64], \
memory [ContainerMemory]
    ListPodResourcesRequest:
    ListPodResourcesResponse: pod_resources [PodResources]
    AllocatableResourcesRequest:
    AllocatableResourcesResponse: devices [ContainerDevices], cpu_ids [int64], memory [ContainerMemory]
    GetPodResourcesRequest: pod_name string, pod_namespace string
    GetPodResourcesResponse: pod_resources PodResources
    rpc PodResourcesLister.List ListPodResourcesRequest ListPodResourcesResponse
    rpc PodResourcesLister.GetAllocatableResources AllocatableResourcesRequest AllocatableResourcesResponse
    rpc PodResourcesLister.Get GetPodResourcesRequest GetPodResourcesResponse
    """,
)

POD_RESOURCES_ALPHA = Api(
    "v1alpha1",
    """
    ContainerDevices: resource_name string, device_ids [string]
    ContainerResources: name string, devices [ContainerDevices]
    PodResources: name string, namespace string, containers [ContainerResources]
    ListPodResourcesRequest:
    ListPodResourcesResponse: pod_resources [PodResources]
    rpc PodResourcesLister.List ListPodResourcesRequest ListPodResourcesResponse
    """,
)

_DRA = """
    Claim: namespace string, uid string, name string
    NodePrepareResourcesRequest: claims [Claim]
    Device: request_names [string], pool_name string, device_name string, cdi_device_ids [string]{more}
    NodePrepareResourceResponse: devices [Device], error string
    NodePrepareResourcesResponse: claims {{NodePrepareResourceResponse}}
    NodeUnprepareResourcesRequest: claims [Claim]
    NodeUnprepareResourceResponse: error string
    NodeUnprepareResourcesResponse: claims {{NodeUnprepareResourceResponse}}
    rpc DRAPlugin.NodePrepareResources NodePrepareResourcesRequest NodePrepareResourcesResponse
    rpc DRAPlugin.NodeUnprepareResources NodeUnprepareResourcesRequest NodeUnprepareResourcesResponse
    """

DRA = Api("k8s.io.kubelet.pkg.apis.dra.v1", _DRA.format(more=", share_id string"))
DRA_BETA = Api("k8s.io.kubelet.pkg.apis.dra.v1beta1", _DRA.format(more=""))

_DRA_HEALTH = """
    NodeWatchResourcesRequest:
    DeviceIdentifier: pool_name string, device_name string
    DeviceHealth: device DeviceIdentifier, health int32, last_updated_time int64, \
health_check_timeout_seconds int64, message string
    NodeWatchResourcesResponse: devices [DeviceHealth]
    rpc DRAResourceHealth.NodeWatchResources NodeWatchResourcesRequest stream NodeWatchResourcesResponse
    """

DRA_HEALTH = Api("v1", _DRA_HEALTH)
DRA_HEALTH_ALPHA = Api("v1alpha1", _DRA_HEALTH)

PODS = Api(
    "v1alpha1",
    """
    WatchPodsEvent: type int32, pod bytes
    ListPodsResponse: pods [bytes]
    GetPodResponse: pod bytes
    WatchPodsRequest:
    ListPodsRequest:
    GetPodRequest: podUID string
    rpc Pods.WatchPods WatchPodsRequest stream WatchPodsEvent
    rpc Pods.ListPods ListPodsRequest ListPodsResponse
    rpc Pods.GetPod GetPodRequest GetPodResponse
    """,
)
