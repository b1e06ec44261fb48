"""CPUs and memory that containers have for themselves: which, for whom, and when there are none (pkg/kubelet/cm)."""
