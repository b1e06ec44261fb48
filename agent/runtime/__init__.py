"""The container runtime over CRI: its client, its state for the Node, and a view of every pod that is kept fresh.

Upstream: k8s.io/cri-client, pkg/kubelet/kuberuntime and pkg/kubelet/pleg (relist and evented). Open work/observer.py
first: lists are the truth and events say where to look; edge/cri.py makes the calls.
"""
