"""The CRI configurations of sandboxes and containers: environment, DNS, hosts file, mounts, security context.

Upstream: pkg/kubelet/kubelet_pods.go, pkg/kubelet/kuberuntime (generateContainerConfig, generatePodSandboxConfig),
pkg/kubelet/network/dns. Start with work/configs.py (ContainerConfigs); the rules are in plan/, one file per topic.
"""
