"""Spans of OpenTelemetry, and their way to a collector: `export.py` queues and sends, `otlp.py` writes them.

Upstream: k8s.io/component-base/tracing, whose provider batches spans and sends them over OTLP gRPC. A daemon that is
not told to trace imports only `model.py` and `current.py`.
"""
