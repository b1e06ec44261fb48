#!/usr/bin/env python3
"""What reboot.sh knows of a cluster, told by a client of its own in the machine: PyYAML and the standard library.

  witness.py write NOTES PREFIX     make ConfigMaps one by one, and note each that was acknowledged, until SIGTERM
  witness.py check NOTES PREFIX     whether all that are noted are there, with their content
  witness.py pods SELECTOR COUNT    wait until COUNT Ready pods have containers that this boot of the machine started
  witness.py serves SERVICE COUNT   wait until each node's NodePort, and a pod by the ClusterIP, reach COUNT pods

NOTES is on a disk of its own, so that writing it brings nothing else to the disk. $KUBECONFIG names the cluster.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import signal
import ssl
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

_PATIENCE = 600.0  # seconds; emulated machines are slow
_MAPS = "/api/v1/namespaces/default/configmaps"
_PAGE = 500  # objects


class Api:
    """The API server of a kubeconfig with embedded keys, over one connection that is made again when it breaks."""

    def __init__(self, kubeconfig: str) -> None:
        document = yaml.safe_load(Path(kubeconfig).read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        pair = Path(f"/run/witness-{os.getpid()}.pem")
        pair.touch(mode=0o600)
        try:
            parts = (user["client-certificate-data"], user["client-key-data"])
            pair.write_bytes(b"".join(base64.b64decode(part) for part in parts))
            self._tls.load_cert_chain(pair)
        finally:
            pair.unlink()
        self._host = urllib.parse.urlsplit(cluster["server"]).netloc
        self._connect()

    def _connect(self) -> None:
        self._connection = http.client.HTTPSConnection(self._host, context=self._tls, timeout=30)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of the answer. Raises OSError or HTTPException when there is none."""
        try:
            text = None if body is None else json.dumps(body)
            self._connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            self._connection.close()
            self._connect()
            raise

    def items(self, path: str, **query: str) -> list[Any]:
        found: list[Any] = []
        going, after = True, ""
        while going:
            query |= {"limit": str(_PAGE), "continue": after}
            status, page = self.ask("GET", f"{path}?{urllib.parse.urlencode(query)}")
            if status != http.client.OK:
                raise OSError(f"{path}: {status} {page.get('message')}")
            found += page["items"]
            after = page["metadata"].get("continue", "")
            going = bool(after)
        return found


def write(api: Api, notes: Path, prefix: str) -> str:
    """Note `NAME SECONDS` for each write that the API server acknowledged; the note is on its disk before the next."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    number = refused = 0
    with notes.open("ab", buffering=0) as file:
        while not ended:
            number += 1
            name = f"{prefix}-{number:06d}"
            body = {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": content(name)}}
            try:
                status, _ = api.ask("POST", _MAPS, body)
            except (OSError, http.client.HTTPException, ValueError):
                status = 0
            if status != http.client.CREATED:
                refused += 1
                time.sleep(0.2)
                continue
            file.write(f"{name} {time.time():.3f}\n".encode())
            os.fsync(file.fileno())
    return f"{number - refused} writes acknowledged, {refused} not"


def content(name: str) -> str:
    """About 1 KB that only this name has."""
    return hashlib.sha256(name.encode()).hexdigest() * 16


def check(api: Api, notes: Path, prefix: str) -> str:
    """Raises SystemExit(3) when something is missing, and says from how long before the last write on."""
    lines = [line.split() for line in notes.read_text().splitlines() if line.startswith(f"{prefix}-")]
    there = {one["metadata"]["name"]: one.get("data", {}).get("value") for one in api.items(_MAPS)}
    lost = [(name, float(at)) for name, at in lines if there.get(name) != content(name)]
    if not lines:
        raise SystemExit("no write was acknowledged: nothing is shown")
    said = f"{len(lines)} writes acknowledged, {len(lines) - len(lost)} of them there, {len(lost)} lost"
    if lost:
        print(f"{said}: those of the last {float(lines[-1][1]) - lost[0][1]:.1f} s, from {lost[0][0]} on")
        raise SystemExit(3)
    return said


def pods(api: Api, selector: str, count: int) -> str:
    """A status of the boot before does not count: its containers ended with the machine."""
    boot = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if "btime" in line)
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(boot))

    def waits_for() -> str:
        found = api.items("/api/v1/namespaces/default/pods", labelSelector=selector)
        well = [one for one in found if is_ready(one) and started(one) >= since]
        if len(well) == len(found) == count:
            return ""
        return f"{len(well)} of {len(found)} pods Ready with containers of this boot (since {since})"

    took = until(waits_for)
    return f"{count} pods of {selector} Ready, all with containers of this boot (after {took:.1f} s)"


def is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def started(pod: Any) -> str:
    """When the container that started first did, "" if one does not run."""
    states = [one["state"].get("running", {}) for one in pod["status"].get("containerStatuses", [])]
    return min((str(one.get("startedAt", "")) for one in states), default="")


def serves(api: Api, service: str, count: int) -> str:
    """Each node's NodePort, and from a pod the ClusterIP: every pod behind the Service must have answered."""
    _, found = api.ask("GET", f"/api/v1/namespaces/default/services/{service}")
    port, inner = found["spec"]["ports"][0], found["spec"]["clusterIP"]
    nodes = [
        next(each["address"] for each in one["status"]["addresses"] if each["type"] == "InternalIP")
        for one in api.items("/api/v1/nodes")
    ]
    dial = f"/dial?host={inner}&port={port['port']}&protocol=http&request=hostname&tries=20"
    ways = {node: (node, "/hostname") for node in nodes} | {inner: (nodes[0], dial)}
    seen: dict[str, set[str]] = {way: set() for way in ways}

    def waits_for() -> str:
        for way, (node, path) in ways.items():
            if len(seen[way]) < count:
                seen[way] |= answers(node, port["nodePort"], path)
        return ", ".join(f"{way}: {len(names)} of {count}" for way, names in seen.items() if len(names) < count)

    took = until(waits_for)
    return f"{count} pods answer by the NodePort of {' and '.join(nodes)}, and a pod by {inner} (after {took:.1f} s)"


def answers(node: str, port: int, path: str) -> set[str]:
    """The names of the pods that answered; none when nobody did."""
    connection = http.client.HTTPConnection(node, port, timeout=10)
    try:
        connection.request("GET", path)
        text = connection.getresponse().read().decode()
        return set(json.loads(text).get("responses", [])) if path.startswith("/dial") else {text}
    except (OSError, http.client.HTTPException, ValueError):
        return set()
    finally:
        connection.close()


def until(waits_for: Any) -> float:
    """Seconds until it has nothing to wait for; an API server that does not answer is waited for, too."""
    begun, reason = time.monotonic(), "nothing was tried"
    while time.monotonic() < begun + _PATIENCE:
        try:
            reason = waits_for()
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            reason = repr(error)
        if not reason:
            return time.monotonic() - begun
        time.sleep(0.5)
    raise SystemExit(f"after {_PATIENCE:g} s: {reason}")


def main() -> None:
    """Run one command line."""
    verb, what, more = sys.argv[1:]
    api = Api(os.environ["KUBECONFIG"])
    if verb in ("write", "check"):
        print({"write": write, "check": check}[verb](api, Path(what), more))
    else:
        print({"pods": pods, "serves": serves}[verb](api, what, int(more)))


if __name__ == "__main__":
    main()
