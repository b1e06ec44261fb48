"""This machine as a Node: registration, status, Lease, and graceful node shutdown.

Upstream: pkg/kubelet/kubelet_node_status.go, pkg/kubelet/nodestatus, pkg/kubelet/nodeshutdown and the Lease of
k8s.io/component-helpers. Open work/node.py first: it registers the Node and keeps its status true; plan/status.py says
what that status is. work/shutdown.py stops the pods before the machine shuts down.
"""
