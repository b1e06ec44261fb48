"""The Container Storage Interface on the wire: csi.v1 of the specification 1.13, the calls made or served here.

Not described: groups of snapshots, metadata of snapshots, attaching and health (alpha).
"""

from __future__ import annotations

from nodelib.plugin_apis.wire import Api

CSI = Api(
    "csi.v1",
    """
    BoolValue: value bool
    Int64Value: value int64
    Timestamp: seconds int64, nanos int32
    BlockVolume:
    MountVolume: fs_type string, mount_flags [string], volume_mount_group string
    AccessMode: mode int32
    VolumeCapability: block BlockVolume, mount MountVolume, access_mode AccessMode
    CapacityRange: required_bytes int64, limit_bytes int64
    Topology: segments {string}
    TopologyRequirement: requisite [Topology], preferred [Topology]
    SnapshotSource: snapshot_id string
    VolumeSource: volume_id string
    VolumeContentSource: snapshot SnapshotSource, volume VolumeSource
    Volume: capacity_bytes int64, volume_id string, volume_context {string}, content_source VolumeContentSource, \
accessible_topology [Topology]
    Snapshot: size_bytes int64, snapshot_id string, source_volume_id string, creation_time Timestamp, ready_to_use bool
    RPC: type int32
    Service: type int32
    VolumeExpansion: type int32
    PluginCapability: service Service, volume_expansion VolumeExpansion
    ControllerServiceCapability: rpc RPC
    NodeServiceCapability: rpc RPC
    VolumeUsage: available int64, total int64, used int64, unit int32
    Confirmed: volume_context {string}, volume_capabilities [VolumeCapability], parameters {string}
    VolumeEntry: volume Volume
    SnapshotEntry: snapshot Snapshot
    GetPluginInfoRequest:
    GetPluginInfoResponse: name string, vendor_version string, manifest {string}
    GetPluginCapabilitiesRequest:
    GetPluginCapabilitiesResponse: capabilities [PluginCapability]
    ProbeRequest:
    ProbeResponse: ready BoolValue
    CreateVolumeRequest: name string, capacity_range CapacityRange, volume_capabilities [VolumeCapability], \
parameters {string}, secrets {string}, volume_content_source VolumeContentSource, \
accessibility_requirements TopologyRequirement, mutable_parameters {string}
    CreateVolumeResponse: volume Volume
    DeleteVolumeRequest: volume_id string, secrets {string}
    DeleteVolumeResponse:
    ValidateVolumeCapabilitiesRequest: volume_id string, volume_context {string}, \
volume_capabilities [VolumeCapability], parameters {string}, secrets {string}, mutable_parameters {string}
    ValidateVolumeCapabilitiesResponse: confirmed Confirmed, message string
    ListVolumesRequest: max_entries int32, starting_token string
    ListVolumesResponse: entries [VolumeEntry], next_token string
    GetCapacityRequest: volume_capabilities [VolumeCapability], parameters {string}, accessible_topology Topology
    GetCapacityResponse: available_capacity int64, maximum_volume_size Int64Value, minimum_volume_size Int64Value
    ControllerGetCapabilitiesRequest:
    ControllerGetCapabilitiesResponse: capabilities [ControllerServiceCapability]
    CreateSnapshotRequest: source_volume_id string, name string, secrets {string}, parameters {string}
    CreateSnapshotResponse: snapshot Snapshot
    DeleteSnapshotRequest: snapshot_id string, secrets {string}
    DeleteSnapshotResponse:
    ListSnapshotsRequest: max_entries int32, starting_token string, source_volume_id string, snapshot_id string, \
secrets {string}
    ListSnapshotsResponse: entries [SnapshotEntry], next_token string
    ControllerExpandVolumeRequest: volume_id string, capacity_range CapacityRange, secrets {string}, \
volume_capability VolumeCapability
    ControllerExpandVolumeResponse: capacity_bytes int64, node_expansion_required bool
    NodeGetInfoRequest:
    NodeGetInfoResponse: node_id string, max_volumes_per_node int64, accessible_topology Topology
    NodeGetCapabilitiesRequest:
    NodeGetCapabilitiesResponse: capabilities [NodeServiceCapability]
    NodeStageVolumeRequest: volume_id string, publish_context {string}, staging_target_path string, \
volume_capability VolumeCapability, secrets {string}, volume_context {string}
    NodeStageVolumeResponse:
    NodeUnstageVolumeRequest: volume_id string, staging_target_path string
    NodeUnstageVolumeResponse:
    NodePublishVolumeRequest: volume_id string, publish_context {string}, staging_target_path string, \
target_path string, volume_capability VolumeCapability, readonly bool, secrets {string}, volume_context {string}
    NodePublishVolumeResponse:
    NodeUnpublishVolumeRequest: volume_id string, target_path string
    NodeUnpublishVolumeResponse:
    NodeGetVolumeStatsRequest: volume_id string, volume_path string, staging_target_path string
    NodeGetVolumeStatsResponse: usage [VolumeUsage]
    NodeExpandVolumeRequest: volume_id string, volume_path string, capacity_range CapacityRange, \
staging_target_path string, volume_capability VolumeCapability, secrets {string}
    NodeExpandVolumeResponse: capacity_bytes int64
    rpc Identity.GetPluginInfo GetPluginInfoRequest GetPluginInfoResponse
    rpc Identity.GetPluginCapabilities GetPluginCapabilitiesRequest GetPluginCapabilitiesResponse
    rpc Identity.Probe ProbeRequest ProbeResponse
    rpc Controller.CreateVolume CreateVolumeRequest CreateVolumeResponse
    rpc Controller.DeleteVolume DeleteVolumeRequest DeleteVolumeResponse
    rpc Controller.ValidateVolumeCapabilities ValidateVolumeCapabilitiesRequest ValidateVolumeCapabilitiesResponse
    rpc Controller.ListVolumes ListVolumesRequest ListVolumesResponse
    rpc Controller.GetCapacity GetCapacityRequest GetCapacityResponse
    rpc Controller.ControllerGetCapabilities ControllerGetCapabilitiesRequest ControllerGetCapabilitiesResponse
    rpc Controller.CreateSnapshot CreateSnapshotRequest CreateSnapshotResponse
    rpc Controller.DeleteSnapshot DeleteSnapshotRequest DeleteSnapshotResponse
    rpc Controller.ListSnapshots ListSnapshotsRequest ListSnapshotsResponse
    rpc Controller.ControllerExpandVolume ControllerExpandVolumeRequest ControllerExpandVolumeResponse
    rpc Node.NodeGetInfo NodeGetInfoRequest NodeGetInfoResponse
    rpc Node.NodeGetCapabilities NodeGetCapabilitiesRequest NodeGetCapabilitiesResponse
    rpc Node.NodeStageVolume NodeStageVolumeRequest NodeStageVolumeResponse
    rpc Node.NodeUnstageVolume NodeUnstageVolumeRequest NodeUnstageVolumeResponse
    rpc Node.NodePublishVolume NodePublishVolumeRequest NodePublishVolumeResponse
    rpc Node.NodeUnpublishVolume NodeUnpublishVolumeRequest NodeUnpublishVolumeResponse
    rpc Node.NodeGetVolumeStats NodeGetVolumeStatsRequest NodeGetVolumeStatsResponse
    rpc Node.NodeExpandVolume NodeExpandVolumeRequest NodeExpandVolumeResponse
    """,
)
