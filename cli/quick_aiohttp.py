"""aiohttp for short commands: imported before anything else imports it.

It reads the certificates of all the world's authorities twice when it is imported (aiohttp.connector), a tenth of the
time of a command that asks one API server, which has an authority of its own.
"""

from __future__ import annotations

import os

_FILE, _FOLDER = "SSL_CERT_FILE", "SSL_CERT_DIR"  # what OpenSSL reads instead of the system's

_before = {name: os.environ.get(name) for name in (_FILE, _FOLDER)}
os.environ[_FILE] = os.environ[_FOLDER] = os.devnull
try:
    import aiohttp as aiohttp
finally:
    for _name, _value in _before.items():
        if _value is None:
            del os.environ[_name]
        else:
            os.environ[_name] = _value
