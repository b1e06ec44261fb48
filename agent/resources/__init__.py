"""CPU, memory and other resources of pods: their cgroups, what they are allocated, and in-place resizes.

Upstream: pkg/kubelet/cm (cgroup managers, QoS and node containers) and pkg/kubelet/allocation.
Start with work/cgroups.py (KubepodsTree), then plan/cgroups.py, which has the names and numbers; work/allocations.py
keeps what pods were allocated; edge/ touches the cgroup file systems.
"""
