"""Who may ask what: the path with its token, the Host, the method, and the words of a question. Pure.

A page of another site could lead a browser here (DNS rebinding), so a Host that is no loopback name is refused; and a
WebSocket, which browsers open across sites, has to come from this very page.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from view.model.objects import LONGEST_REQUEST, SHOWN, Look, PacketLook, Question, WiringLook

_HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9:._-]{0,252})")
_NAMESPACE = re.compile(r"[a-z0-9]?[a-z0-9-]{0,62}")
_PLACE = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9:/._\[\]-]{0,399}")
LIVE, TRACE = "live", "trace"
_PACKET, _WIRING = "packet", "wiring"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`status` 200 and `what` is asked for ("" for the page itself), or the status of the refusal and its words."""

    status: int
    what: str = ""


def judge(method: str, target: str, headers: Mapping[str, str], token: str) -> Verdict:
    """`target` is the path as it was sent, with or without a query; `headers` takes names in lower case."""
    host = headers.get("host", "")
    if not _HOST.fullmatch(host):
        return Verdict(403, "This page is only for a browser on this machine, by 127.0.0.1 or localhost.")
    if method != "GET":
        return Verdict(405, "This page only answers GET.")
    if len(target) > LONGEST_REQUEST:
        return Verdict(414, "The address is too long.")
    first, slash, what = target.partition("?")[0].removeprefix("/").partition("/")
    if not hmac.compare_digest(first.encode(errors="replace"), token.encode()) or not slash:
        return Verdict(404, "There is nothing here. The address that `./nodewright view` printed has the token.")
    if what == LIVE and headers.get("origin", "").lower() != f"http://{host.lower()}":
        return Verdict(403, "Only this page itself may follow what is live.")
    return Verdict(200, what)


def look(text: str) -> Look | PacketLook | WiringLook | None:
    """What a browser wants to look at, from {"look": "pod/shop/web-0"}; None for nothing and for nonsense.

    {"look": "packet", "from": …, "to": …} is the view of packets, {"look": "wiring"} that of the cluster.
    """
    if len(text) > LONGEST_REQUEST:
        return None
    try:
        asked = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(asked, dict):
        return None
    if asked.get("look") == _PACKET:
        return PacketLook(question({key: one for key, one in asked.items() if isinstance(one, str)}))
    if asked.get("look") == _WIRING:
        return WiringLook()
    parts = str(asked.get("look", "")).split("/")
    if len(parts) != 3 or parts[0] not in SHOWN:
        return None
    kind, namespace, name = parts
    return Look(kind, (namespace, name)) if _NAMESPACE.fullmatch(namespace) and _NAME.fullmatch(name) else None


def question(query: Mapping[str, str]) -> Question | None:
    """From where to where; None for what no name or address looks like."""
    source, to, protocol = query.get("from", ""), query.get("to", ""), query.get("protocol", "")
    if protocol not in ("", "tcp", "udp") or not _PLACE.fullmatch(source) or not _PLACE.fullmatch(to):
        return None
    return Question(source, to, protocol)
