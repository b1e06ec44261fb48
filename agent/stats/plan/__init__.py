"""A snapshot as the Summary object or as Prometheus text."""
