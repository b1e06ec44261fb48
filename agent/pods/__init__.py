"""The core of the kubelet: for each pod, decide the next steps from what is wanted and what runs, do them, report.

Upstream: SyncPod of pkg/kubelet/kubelet.go, pod_workers.go, computePodActions of kuberuntime, and the status manager
(pkg/kubelet/status). Start with model/steps.py (what can be done for a pod), plan/pod.py (what to do next) and
work/pod_worker.py (the loop: plan, walk the steps, plan again); work/pod_workers.py starts the workers.
"""
