"""What touches the world: watches, sockets, sysctls, netlink. Decides nothing."""
