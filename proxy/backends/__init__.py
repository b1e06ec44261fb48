"""One desired state, one backend per mode: each walks the plans of its own `proxy.plan.<mode>`."""
