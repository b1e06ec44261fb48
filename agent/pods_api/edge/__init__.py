"""The socket and the metrics."""
