"""Values of Secrets."""

from __future__ import annotations

import base64
import binascii

from nodelib.errors import Invalid


def decode_secret(value: str) -> bytes:
    """One value of Secret.data. Raises Invalid when it is not base64."""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid("Secret data is not base64") from error
