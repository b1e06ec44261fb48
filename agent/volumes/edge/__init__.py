"""System calls, files, sockets and API requests for volumes."""
