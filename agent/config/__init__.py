"""KubeletConfiguration (kubelet.config.k8s.io/v1beta1) and the kubelet's flags: what may be said, and how it is read."""
