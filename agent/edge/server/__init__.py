"""The server's touch with the world: TLS and listening sockets, certificates, the proxied upgrade."""
