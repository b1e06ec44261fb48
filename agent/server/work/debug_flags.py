"""/debug/flags/v: how much this process logs, changed while it runs.

Answers as upstream's StringFlagPutHandler (k8s.io/apiserver/pkg/server/routes/flags.go) with logs.GlogSetter.
"""

from __future__ import annotations

import re

from aiohttp import web

from agent.server.work.responses import text
from nodelib.daemons import log as logs

_LARGEST = 2**31 - 1
_DIGITS = 10  # of the largest
_NUMBER = re.compile(rf"[+-]?[0-9]{{1,{_DIGITS}}}")


async def verbosity(request: web.Request) -> web.Response:
    """PUT a number: klog's -v from now on. 400 for what is none, 406 for another method."""
    if request.method != "PUT":
        return text(406, "unsupported http method")
    # What is longer is no number: it is not read to its end.
    given = (await request.content.read(_DIGITS + 2)).decode(errors="replace")
    if not _NUMBER.fullmatch(given) or abs(int(given)) > _LARGEST:
        return text(400, f"failed set klog.logging.verbosity {given!r}: it is not a whole number of 32 bits")
    logs.set_verbosity(int(given))
    return text(200, f"successfully set klog.logging.verbosity to {given}")
