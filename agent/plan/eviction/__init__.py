"""Which pods leave a node that runs out of something, and when (pkg/kubelet/eviction)."""
