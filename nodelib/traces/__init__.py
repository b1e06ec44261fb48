"""Spans of OpenTelemetry, and their way to a collector: `export.py` queues and sends, `otlp.py` writes them.

Upstream: k8s.io/component-base/tracing, whose provider batches spans and sends them over OTLP gRPC. A daemon that is
not told to trace imports only `model.py`, `sampling.py`, `current.py` (the span that a task works for), `steps.py`
(traces of work that many changes share) and the readers of its settings, and makes no spans.
"""
