#!/usr/bin/env python3
"""What deb-upgrade.sh sees of a node while a command runs that replaces its kubelet. The standard library only.

  deb_witness.py KUBECONFIG COMMAND...     prints what happened to the node's daemons and to the pods of `default`

Before and after: the units' processes, the containers with their processes. Meanwhile, twice a second or as often
as the machine can: the kubelet's health port, an echo from a pod on one long connection, a new connection to a Service;
every change of a pod's Ready, of restart counts and of the node's Ready, from watches; and a pod that is made every few
seconds. Ends with 1 if a container is another one, was restarted or became unready, if the echo's connection broke, a
connection to the Service failed, or a new pod did not start.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import socket
import ssl
import subprocess  # noqa: TID251 - it has the standard library only
import sys
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

_PODS = "/api/v1/namespaces/default/pods"
_PATIENCE = 300.0  # seconds; the machine is slow
_PACE = 0.5  # what asks more often is most of what a slow machine does
_BETWEEN_PODS = 20.0  # each is seconds of that machine's CPU
_BEFORE = 30.0  # seconds to look on before the command
_CALM = 20.0  # and after all is well
_UNITS = ("kubelet", "nodewright-proxy")
_SERVICE = ("10.96.0.80", 80)
_IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"


class Api:
    """The API server of a kubeconfig that is JSON and has a token; one connection for each call."""

    def __init__(self, kubeconfig: str) -> None:
        document = json.loads(Path(kubeconfig).read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {user['token']}"}
        self._host = urllib.parse.urlsplit(cluster["server"]).netloc

    def open(self, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection(self._host, context=self._tls, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body), self._headers)
        return connection.getresponse()

    def get(self, path: str) -> Any:
        with self.open("GET", path) as answer:
            return json.loads(answer.read())


class Witness:
    """Threads that look on until `ended`; each event is a line with its second since the command began."""

    def __init__(self, api: Api) -> None:
        self.api, self.began, self.ended = api, time.monotonic(), threading.Event()
        self.faults: list[str] = []
        self.absent: list[tuple[float, float]] = []  # from the last answer of the kubelet until the next
        self.gap = 0.0  # seconds, the longest between two echoes
        self.echoes = self.answers = 0
        self.births: dict[str, list[float]] = {}  # made, Ready
        self._known: dict[str, tuple[Any, ...]] = {}

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    def say(self, text: str, *, fault: bool = False) -> None:
        print(f"{self.now:8.2f} s  {'FAULT ' if fault else ''}{text}", flush=True)
        if fault:
            self.faults.append(text)

    def health(self) -> None:
        """Whether something listens there: an answer may take seconds on a machine that is slow."""
        last, away = self.now, False
        while not self.ended.is_set():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", 10248, timeout=30)
                connection.request("GET", "/healthz")
                answers = connection.getresponse().status == http.client.OK
                connection.close()
            except (ConnectionError, http.client.HTTPException):
                answers = False
            except OSError:
                continue
            if answers:
                if away:
                    self.absent.append((last, self.now))
                    self.say(f"the kubelet answers again, after {self.now - last:.2f} s")
                last, away = self.now, False
            elif not away:
                away = True
                self.say("the kubelet's health port does not answer")
            time.sleep(_PACE)

    def echo(self, address: str) -> None:
        """One connection to the pod, for the whole time."""
        try:
            with socket.create_connection((address, 7000), timeout=30) as connection:
                stream = connection.makefile("rwb")
                last = self.now
                while not self.ended.is_set():
                    line = f"{self.echoes}\n".encode()
                    stream.write(line)
                    stream.flush()
                    if stream.readline() != line:
                        raise OSError("the pod closed it")
                    self.echoes += 1
                    self.gap, last = max(self.gap, self.now - last), self.now
                    time.sleep(_PACE)
        except OSError as error:
            self.say(f"the connection to the pod broke: {error}", fault=True)

    def service(self) -> None:
        """A new connection each time."""
        failed = 0
        while not self.ended.is_set():
            try:
                connection = http.client.HTTPConnection(*_SERVICE, timeout=20)
                connection.request("GET", "/hostname")
                connection.getresponse().read()
                connection.close()
                self.answers += 1
            except (OSError, http.client.HTTPException) as error:
                failed += 1
                if failed == 1:
                    self.say(f"the Service did not answer: {error!r}", fault=True)
            time.sleep(_PACE)
        if failed:
            self.say(f"connections to the Service that failed: {failed}", fault=True)

    def watch(self, path: str, look: Any) -> None:
        while not self.ended.is_set():
            with (
                contextlib.suppress(OSError, http.client.HTTPException, ValueError),
                self.api.open("GET", f"{path}?watch=1&timeoutSeconds=3600") as answer,
            ):
                while not self.ended.is_set() and (line := answer.readline()):
                    event = json.loads(line)
                    if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                        look(event["type"], event["object"])
            time.sleep(0.2)

    def pod(self, kind: str, pod: Any) -> None:
        name, containers = pod["metadata"]["name"], pod["status"].get("containerStatuses", [])
        seen = (
            kind == "DELETED",
            condition(pod) == "True",
            tuple(one["restartCount"] for one in containers),
            tuple(one.get("containerID", "") for one in containers),
        )
        before, self._known[name] = self._known.get(name), seen
        if name in self.births:
            if seen[1] and len(self.births[name]) == 1:
                self.births[name].append(self.now)
            if any(seen[2]) or (before and before[1] and not seen[1] and kind != "DELETED"):
                self.say(f"pod {name}: Ready {seen[1]}, restarts {seen[2]}", fault=True)
        elif before and before != seen:
            self.say(f"pod {name}: Ready {seen[1]}, restarts {seen[2]}, containers {seen[3]}", fault=True)

    def node(self, _kind: str, node: Any) -> None:
        name, seen = node["metadata"]["name"], (condition(node), node["status"]["nodeInfo"]["kubeletVersion"])
        before, self._known[f"/{name}"] = self._known.get(f"/{name}"), seen
        if before and before != seen:
            self.say(f"node {name}: Ready {seen[0]}, {seen[1]}", fault=seen[0] != "True")

    def bear(self) -> None:
        stamp = int(time.time())
        for number in itertools.count():
            if self.ended.wait(_BETWEEN_PODS):
                return
            name = f"born-{stamp}-{number}"
            body = {
                "metadata": {"name": name, "labels": {"app": "born"}},
                "spec": {
                    "nodeName": "uml",
                    "terminationGracePeriodSeconds": 1,  # with 0 it would be gone before its container
                    "containers": [{"name": "c", "image": _IMAGE, "command": ["sleep", "100000"]}],
                },
            }
            self.births[name] = [self.now]
            with contextlib.suppress(OSError, http.client.HTTPException), self.api.open("POST", _PODS, body) as answer:
                if answer.status == http.client.CREATED:
                    continue
            del self.births[name]


def condition(thing: Any) -> str:
    return next((one["status"] for one in thing["status"].get("conditions", []) if one["type"] == "Ready"), "")


def run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True).stdout.strip()


def units() -> dict[str, str]:
    shown = ("-p", "MainPID", "-p", "NRestarts", "-p", "ActiveState", "-p", "ExecMainStartTimestampMonotonic")
    return {unit: " ".join(run("systemctl", "show", *shown, unit).split()) for unit in _UNITS}


def tasks() -> dict[str, tuple[str, str]]:
    """Of each container of the runtime: its process, and when that began."""
    rows = [line.split() for line in run("ctr", "-n", "k8s.io", "task", "ls").splitlines()[1:]]
    return {identity: (pid, began(pid)) for identity, pid, *_ in rows}


def began(pid: str) -> str:
    """In ticks since the machine's boot; "" when there is no such process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def version() -> str:
    return f"{run('dpkg-query', '-W', '-f', '${Version}', 'nodewright')}, {run('kubelet', '--version')}"


def main() -> int:
    """Run the command line's command, with everything looking on."""
    api = Api(sys.argv[1])
    server = api.get(f"{_PODS}/echo")["status"]["podIP"]
    before = tasks()
    print(f"before: {version()}; {len(before)} containers\n  " + "\n  ".join(f"{k}: {v}" for k, v in units().items()))
    witness = Witness(api)
    jobs = (
        (witness.health,),
        (witness.echo, server),
        (witness.service,),
        (witness.watch, _PODS, witness.pod),
        (witness.watch, "/api/v1/nodes", witness.node),
        (witness.bear,),
    )
    threads = [threading.Thread(target=job, args=more, daemon=True) for job, *more in jobs]
    for thread in threads:
        thread.start()
    time.sleep(_BEFORE)
    witness.say(f"$ {' '.join(sys.argv[2:])}")
    begun = witness.now
    process = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        witness.say(f"  {line.rstrip()}")
    status = process.wait()
    witness.say(f"status {status}, after {witness.now - begun:.1f} s", fault=status != 0)
    time.sleep(_CALM)
    witness.ended.set()
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and any(len(one) == 1 for one in witness.births.values()):
        for pod in api.get(f"{_PODS}?labelSelector=app%3Dborn")["items"]:
            witness.pod("MODIFIED", pod)
        time.sleep(0.5)
    report(witness, before, begun)
    return 1 if witness.faults else 0


def report(witness: Witness, before: dict[str, tuple[str, str]], begun: float) -> None:
    """Print what comes after."""
    # The runtime is not asked: it leaves out containers whose shim is slow to answer.
    gone = {name: pid for name, (pid, tick) in before.items() if began(pid) != tick}
    for name, pid in gone.items():
        witness.say(f"container {name}: its process {pid} is gone", fault=True)
    print(f"after: {version()}; {len(before) - len(gone)} of {len(before)} containers with the same process")
    print("  " + "\n  ".join(f"{unit}: {state}" for unit, state in units().items()))
    for first, last in witness.absent:
        print(f"the kubelet did not answer for {last - first:.2f} s, from {first - begun:.2f} s on")
    print(
        f"echo: {witness.echoes} on one connection, the longest gap {witness.gap:.2f} s; "
        f"{witness.answers} answers of the Service"
    )
    for name, times in witness.births.items():
        made = f"{times[0] - begun:7.2f} s"
        if len(times) == 1:
            witness.say(f"pod {name}, made at {made}, did not start", fault=True)
        else:
            print(f"a pod made at {made} was Ready after {times[1] - times[0]:.2f} s")
    print(f"{len(witness.faults)} faults")


if __name__ == "__main__":
    sys.exit(main())
