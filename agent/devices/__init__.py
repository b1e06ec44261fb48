"""Devices for containers: device plugins, dynamic resource allocation (DRA) and the podresources API.

Upstream: pkg/kubelet/cm/devicemanager, pkg/kubelet/cm/dra and pkg/kubelet/apis/podresources. Device plugins register,
list their devices and are asked to allocate them; DRA drivers prepare ResourceClaims. Allocations are checkpointed.
Start with work/devices.py (DeviceManager), then work/dra.py (DraManager).
"""
