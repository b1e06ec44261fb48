"""The service proxy: Services and EndpointSlices in, rules of the kernel out (upstream's kube-proxy)."""
