"""gRPC to device plugins and DRA drivers, the kubelet sockets, and calls to the API server about claims."""
