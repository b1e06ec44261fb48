"""The kubelet's HTTPS server on port 10250, the read-only and health ports, and a unix socket for root.

Upstream: pkg/kubelet/server and cmd/kubelet/app/auth.go. Open work/routes.py first: it lists every endpoint.
Endpoints take aiohttp's request and return its response. Sockets, TLS, files and upgraded connections are edges behind
ports.py; of the API client only the one call for reviews is used (ports.ReviewApi).
"""
