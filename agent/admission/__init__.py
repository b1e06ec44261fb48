"""Whether this node takes a pod that was bound to it, and which pods must make room for a critical one.

Upstream: pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/preemption and pkg/kubelet/sysctl. Open plan/admit.py first;
there is nothing but decisions here: pods/work/pod_workers.py asks for them.
"""
