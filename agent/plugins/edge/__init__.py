"""The sockets and their registration service, and gRPC to plugins: messages, calls, servers, rate limit."""
