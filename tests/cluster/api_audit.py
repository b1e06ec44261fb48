"""What nodes ask an API server, read from its audit log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

# Proxy and policy daemon have names of their own, no group. A watch is logged when it begins to answer.
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, Panic]
rules: [{level: Metadata}]
"""


@dataclass(frozen=True)
class Asked:
    """One request. `streams`: a watch that begins with the objects that there are; `program`: the User-Agent."""

    program: str
    verb: str
    path: str
    code: int
    streams: bool


def arguments(folder: Path) -> str:
    """What the file of `up --config` says for a cluster whose API server writes audit.log into the folder."""
    (folder / "audit.yaml").write_text(POLICY)
    return f"apiServer: {{args: {{audit-policy-file: {folder}/audit.yaml, audit-log-path: {folder}/audit.log}}}}\n"


def asked(folder: Path) -> set[Asked]:
    """Every kind of request so far. The line that is just being written is left out."""
    lines = (folder / "audit.log").read_text().splitlines(keepends=True)
    return {_asked(json.loads(line)) for line in lines if line.endswith("\n")}


def _asked(event: dict[str, object]) -> Asked:
    url, status = urlsplit(str(event["requestURI"])), event.get("responseStatus")
    code = status.get("code", 0) if isinstance(status, dict) else 0
    streams = parse_qs(url.query).get("sendInitialEvents") == ["true"]
    return Asked(str(event.get("userAgent")), str(event["verb"]), url.path, code, streams)
