"""What `trace` and `service` tell: the way of a packet through a node's rules, a Service's rules and endpoints."""
