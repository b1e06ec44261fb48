"""Static pods: manifests from a directory or a URL, the pods that they describe, and their mirror pods in the API.

Upstream: pkg/kubelet/config (file.go, http.go, common.go) and pkg/kubelet/pod/mirror_client.go. Open work/sources.py
first, then plan/manifest.py (bytes to pods), work/static_pods.py (which pods are wanted) and work/mirrors.py.
"""
