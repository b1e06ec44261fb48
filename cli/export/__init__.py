"""What `nodewright export logs` writes: one folder that answers a bug report, without secrets.

`redact.py` takes secrets out of objects and text, `parts.py` lists what is written, `sources.py` reads it from files,
commands and the API server, `folder.py` writes it within bounds of size and time. kind's counterpart is `kind export
logs`. Start with `parts.py`.
"""
