"""Sockets, TLS, certificate files, the host's log folder, and upgraded connections."""
