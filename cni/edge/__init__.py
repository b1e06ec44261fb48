"""What touches the world for the pod network: netlink, namespaces, files, packet filter. Decides nothing."""
