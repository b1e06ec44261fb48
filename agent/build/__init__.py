"""Joins the parts of the agent: nothing else wires them, except that PodWorkers makes a worker for each pod.

Upstream: cmd/kubelet/app/server.go, and NewMainKubelet in pkg/kubelet/kubelet.go. Start with agent.py: build_core()
makes the parts in order (base, devices, checkpoints, plugins, node, volumes, pods, sources), each from the parts before
it. core.py holds the result: the long-lived tasks, and the order in which everything is closed.
"""
