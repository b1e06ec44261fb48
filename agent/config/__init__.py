"""KubeletConfiguration (v1beta1) and the kubelet's flags: what may be said, and how it is read."""
