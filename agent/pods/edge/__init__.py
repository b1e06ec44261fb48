"""The API server, files under /var/log, HTTP requests of hooks, and the gauges of a scrape."""
