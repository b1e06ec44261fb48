"""Watches of the API server, the HTTP server, and the files that it serves."""
