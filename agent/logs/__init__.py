"""Container logs: which one a request means, reading and following it, and rotation.

Upstream: pkg/kubelet/logs (container_log_manager.go), k8s.io/cri-client/pkg/logs, and kubelet_pods.go for the choice of
the container. Open edge/log_reader.py first for reading, work.py for rotation. The endpoint is in agent/server.
"""
