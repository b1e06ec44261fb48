"""The CPU, memory and topology managers: exclusive CPUs and NUMA memory for containers of Guaranteed pods.

Upstream: pkg/kubelet/cm/cpumanager, memorymanager and topologymanager. All of them are decided at once when a pod is
admitted; their states are values, kept in upstream's checkpoints.
Start with plan/admission.py, which walks the containers of a pod; work.py (ResourceManagers) applies the outcome.
"""
