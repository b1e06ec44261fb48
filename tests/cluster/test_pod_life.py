"""What a user does with a pod, and what a pod finds inside: through kubectl, the API server and the node's agent."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import pty
import re
import tarfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from nodelib.kube.times import parse_rfc3339
from tests.builders.pods import AGNHOST, container, manifest, sleeper, web
from tests.cluster.world import Object, World, condition, holds, is_ready, state_of, status_of

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

_COUNTER = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done"


# --- logs ----------------------------------------------------------------------------------------------------------


async def test_logs_of_a_container_that_has_ended(world: World) -> None:
    """tail, limit-bytes, since, timestamps: each cuts the same stream."""
    await world.ended(manifest("words", container(script="seq 1 100; sleep 1; echo error >&2"), restartPolicy="Never"))

    async def logs(*options: str) -> str:
        return (await world.kubectl("logs", "words", *options)).text

    assert await logs() == "".join(f"{i}\n" for i in range(1, 101)) + "error\n"
    assert await logs("--tail=2") == "100\nerror\n"
    assert await logs("--limit-bytes=5") == "1\n2\n3"
    assert await logs("--tail=0") == ""
    assert await logs("--since=1h", "--tail=1") == "error\n"
    assert await logs("--since-time=2999-01-01T00:00:00Z") == ""
    stamp, word = (await logs("--timestamps", "--tail=1")).split()
    assert word == "error"
    assert abs(parse_rfc3339(stamp) - time.time()) < 600


async def test_logs_follow_until_the_container_ends(world: World) -> None:
    await world.run(manifest("ticks", container(script=f"trap 'echo bye; exit 0' TERM; {_COUNTER}")))
    async with world.kubectl_running("logs", "-f", "--tail=1", "ticks") as kubectl:
        assert kubectl.stdout is not None
        lines = [await asyncio.wait_for(kubectl.stdout.readline(), 30) for _ in range(5)]
        numbers = [int(line.split()[1]) for line in lines]
        assert numbers == list(range(numbers[0], numbers[0] + 5))
        await world.delete("ticks")
        rest = (await asyncio.wait_for(kubectl.stdout.read(), 30)).splitlines()
        assert rest[-1] == b"bye"
        assert await asyncio.wait_for(kubectl.wait(), 30) == 0


async def test_logs_of_the_attempt_before(world: World) -> None:
    script = "test -e /data/second && { echo second; sleep 3600 & wait; }; touch /data/second; echo first; exit 3"
    box = container(script=script, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    await world.create(manifest("twice", box, volumes=[{"name": "data", "emptyDir": {}}]))
    seen = await world.until(
        "twice",
        lambda one: state_of(one)[0] == "running" and is_ready(one) and status_of(one)["restartCount"] == 1,
        "the second attempt runs",
    )
    assert status_of(seen)["lastState"]["terminated"]["exitCode"] == 3
    assert (await world.kubectl("logs", "twice")).text == "second\n"
    assert (await world.kubectl("logs", "-p", "twice")).text == "first\n"
    refused = await world.kubectl("logs", "twice", "-c", "other", check=False)
    assert refused.returncode == 1
    assert b"container other is not valid for pod twice" in refused.stderr


# --- exec, attach, cp, port-forward --------------------------------------------------------------------------------


async def test_exec(world: World) -> None:
    """Separate streams, stdin to its end, the exit status of the command, a terminal if one is requested."""
    await world.run(manifest("box"))
    done = await world.kubectl("exec", "box", "--", "sh", "-c", "echo out; echo err >&2; exit 7", check=False)
    assert (done.stdout, done.returncode) == (b"out\n", 7)
    assert done.stderr.startswith(b"err\n")
    data = os.urandom(2_000_000)
    echoed = await world.kubectl("exec", "-i", "box", "--", "cat", stdin=data)
    assert echoed.stdout == data
    missing = await world.kubectl("exec", "box", "--", "/no/such/program", check=False)
    assert missing.returncode != 0
    assert b"no such file" in missing.stderr
    assert await asyncio.to_thread(_in_terminal, world.kubectl_argv, "box") == ["is a terminal", "40 90"]


def _in_terminal(kubectl: list[str], name: str) -> list[str]:
    """What a shell in the pod prints when its user has a terminal of 40 lines and 90 columns."""
    argv = [*kubectl, "exec", "-it", name, "--", "sh"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(argv[0], argv)
    os.set_blocking(terminal, True)
    import fcntl
    import struct
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 90, 0, 0))
    os.write(terminal, b"sleep 1; tty -s && echo is a ter'mi'nal; stty size; exit\n")
    said = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            break
        if not chunk:
            break
        said += chunk
    os.waitpid(pid, 0)
    lines = said.decode().replace("\r", "").splitlines()
    return [line for line in lines if line == "is a terminal" or re.fullmatch(r"\d+ \d+", line)]


async def test_copy_in_and_out(world: World, tmp_path: Path) -> None:
    """kubectl cp is a tar stream through exec, both ways."""
    await world.run(manifest("box"))
    (tmp_path / "in").write_bytes(os.urandom(3_000_000))
    await world.kubectl("cp", str(tmp_path / "in"), "box:/tmp/there")
    await world.kubectl("cp", "box:/tmp/there", str(tmp_path / "out"))
    assert (tmp_path / "in").read_bytes() == (tmp_path / "out").read_bytes()
    stream = await world.kubectl("exec", "box", "--", "tar", "-C", "/tmp", "-c", "there")
    with tarfile.open(fileobj=io.BytesIO(stream.stdout)) as archive:
        assert archive.getmember("there").size == 3_000_000


async def test_attach_to_the_first_process(world: World) -> None:
    box = container(script="while read line; do echo got $line; done", stdin=True)
    await world.run(manifest("reader", box))
    async with world.kubectl_running("attach", "-i", "reader") as kubectl:
        assert kubectl.stdin is not None
        assert kubectl.stdout is not None
        kubectl.stdin.write(b"hello\n")
        await kubectl.stdin.drain()
        assert await asyncio.wait_for(kubectl.stdout.readline(), 30) == b"got hello\n"
    assert "got hello" in (await world.kubectl("logs", "reader")).text


async def test_port_forward(world: World) -> None:
    await world.run(manifest("web", web()))
    async with world.kubectl_running("port-forward", "pod/web", ":8080") as kubectl:
        assert kubectl.stdout is not None
        line = (await asyncio.wait_for(kubectl.stdout.readline(), 30)).decode()
        found = re.search(r"127\.0\.0\.1:(\d+) -> 8080", line)
        assert found, line
        port = found.group(1)
        for _ in range(5):
            assert await asyncio.to_thread(_fetch, f"http://127.0.0.1:{port}/hostname") == "web"


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


# --- what the node says --------------------------------------------------------------------------------------------


async def test_events_tell_the_story(world: World) -> None:
    await world.run(manifest("box"))
    await world.delete("box")
    for reason, text in (
        ("Pulled", "already present on machine"),
        ("Created", ""),
        ("Started", ""),
        ("Killing", "Stopping container main"),
    ):
        event = await world.event("box", reason, text)
        assert event["involvedObject"]["fieldPath"] == "spec.containers{main}"
        assert event["source"] == {"component": "kubelet", "host": event["source"]["host"]}
    assert "Killing" in (await world.kubectl("get", "events")).text


async def test_describe_node(world: World) -> None:
    text = (await world.kubectl("describe", "node", "node1")).text
    for words in ("KubeletReady", "kubelet is posting ready status", "MemoryPressure", "PodCIDR:", "containerd://2."):
        assert words in text, text
    assert "kube-node-lease" not in text
    assert re.search(r"InternalIP:\s+" + re.escape(world.address("node1")), text)
    assert re.search(r"Kubelet Version:\s+v1\.37", text)


async def raw(world: World, path: str) -> str:
    return (await world.kubectl("get", "--raw", f"/api/v1/nodes/node1/proxy/{path}")).text


async def test_statistics_of_a_real_pod(world: World) -> None:
    """stats/summary and metrics/resource name the pod, with memory and CPU that are plausible."""
    busy = container(script="while :; do :; done", resources={"limits": {"cpu": "100m", "memory": "64Mi"}})
    uid = (await world.run(manifest("busy", busy, nodeName="node1")))["metadata"]["uid"]

    async def counted() -> bool:
        summary = json.loads(await raw(world, "stats/summary"))
        row = next((one for one in summary["pods"] if one["podRef"]["uid"] == uid), None)
        if row is None or not row["containers"] or not row["cpu"].get("usageNanoCores"):
            return False
        assert row["containers"][0]["memory"]["workingSetBytes"] < 64 << 20
        assert summary["node"]["nodeName"] == "node1"
        assert summary["node"]["fs"]["capacityBytes"] > 1 << 30
        return bool(row["cpu"]["usageCoreNanoSeconds"] > 0)

    await holds(counted, "stats/summary has the pod's CPU")
    lines = (await raw(world, "metrics/resource")).splitlines()
    label = f'container="main",namespace="{world.namespace}",pod="busy"'
    for metric in ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes"):
        (line,) = (line for line in lines if line.startswith(metric) and label in line)
        assert float(line.rpartition("}")[2].split()[0]) > 0
    assert any(line.startswith("node_cpu_usage_seconds_total") for line in lines)


async def test_the_other_endpoints_of_the_node(world: World) -> None:
    await world.run(manifest("here", nodeName="node1"))
    assert await raw(world, "healthz") == "ok"
    listed = json.loads(await raw(world, "pods"))["items"]
    assert ("here", world.namespace) in {(one["metadata"]["name"], one["metadata"]["namespace"]) for one in listed}
    config = json.loads(await raw(world, "configz"))["kubeletconfig"]
    assert config["clusterDNS"] == [world.cluster.dns_service]
    metrics = await raw(world, "metrics")
    for name in ("kubelet_running_pods", "kubelet_runtime_operations_total", "process_resident_memory_bytes"):
        assert f"\n{name}" in metrics


async def test_nobody_unknown_may_ask_the_node(world: World) -> None:
    """401 without credentials and with wrong ones, 403 for a known user without the permission."""
    token = (await world.kubectl("create", "token", "default")).text.strip()
    url = f"https://{world.address('node1')}:10250"
    async with aiohttp.ClientSession() as session:

        async def status(path: str, token: str = "") -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with session.get(url + path, headers=headers, ssl=False) as answer:
                return answer.status, await answer.text()

        for path in ("/pods", "/metrics", "/stats/summary", "/healthz", "/containerLogs/default/a/b"):
            assert (await status(path))[0] == 401
            assert (await status(path, "false." + base64.b64encode(b"{}").decode() + ".token"))[0] == 401
        code, text = await status("/pods", token)
        assert code == 403
        assert f"system:serviceaccount:{world.namespace}:default" in text


# --- what a pod finds inside ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["ClusterFirst", "Default", "None", "ClusterFirstWithHostNet"])
async def test_dns_policies(world: World, policy: str) -> None:
    own = {"nameservers": ["10.96.0.10"], "searches": ["lab.test"], "options": [{"name": "ndots", "value": "2"}]}
    spec: Object = {"dnsPolicy": policy}
    if policy == "None":
        spec["dnsConfig"] = own
    if policy == "ClusterFirstWithHostNet":
        spec["hostNetwork"] = True
    await world.run(manifest("box", **spec))
    text = await world.shell("box", "cat /etc/resolv.conf")
    searches = f"search {world.namespace}.svc.cluster.local svc.cluster.local cluster.local"
    if policy == "None":
        assert text.split("\n")[:3] == ["search lab.test", "nameserver 10.96.0.10", "options ndots:2"]
    elif policy == "Default":
        assert "10.96.0.10" not in text
        assert "cluster.local" not in text
    else:
        assert searches in text
        assert "nameserver 10.96.0.10" in text
        assert "options ndots:5" in text
        assert "10.96.0.1" in await world.shell("box", "nslookup kubernetes.default.svc.cluster.local")


async def test_hosts_and_host_name(world: World) -> None:
    aliases = [{"ip": "10.1.2.3", "hostnames": ["one.test", "two.test"]}]
    made = await world.run(manifest("box", hostname="inside", subdomain="part", hostAliases=aliases))
    assert await world.shell("box", "hostname") == "inside\n"
    hosts = await world.shell("box", "cat /etc/hosts")
    assert "10.1.2.3\tone.test\ttwo.test" in hosts
    assert f"{made['status']['podIP']}\tinside.part.{world.namespace}.svc.cluster.local\tinside" in hosts


async def test_volumes_of_each_kind(world: World) -> None:
    """emptyDir (disk and memory), configMap, secret, downwardAPI, projected, hostPath: in one pod."""
    await world.config_map("settings", colour="green", size="4")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"key": "s3cret"}}
    await world.create(secret)
    field = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
    sources = [
        {"configMap": {"name": "settings", "items": [{"key": "size", "path": "deep/size"}]}},
        {"secret": {"name": "keys"}},
        {"downwardAPI": field},
        {"serviceAccountToken": {"path": "token", "audience": "somebody", "expirationSeconds": 3600}},
    ]
    volumes: dict[str, Object] = {
        "disk": {"emptyDir": {}},
        "memory": {"emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        "settings": {"configMap": {"name": "settings", "defaultMode": 0o440}},
        "keys": {"secret": {"secretName": "keys", "defaultMode": 0o400}},
        "about": {"downwardAPI": field},
        "all": {"projected": {"sources": sources}},
        "host": {"hostPath": {"path": "/etc/kubernetes", "type": "Directory"}},
    }
    mounts = [{"name": name, "mountPath": f"/v/{name}"} for name in volumes]
    box = sleeper(volumeMounts=mounts)
    await world.run(manifest("box", box, volumes=[{"name": name, **what} for name, what in volumes.items()]))
    assert await world.shell("box", "echo 1 > /v/disk/a && cat /v/disk/a") == "1\n"
    assert "tmpfs" in await world.shell("box", "grep ' /v/memory ' /proc/mounts")
    assert await world.shell("box", "df -m /v/memory | tail -1 | awk '{print $2}'") == "8\n"
    assert await world.shell("box", "cat /v/settings/colour; stat -Lc %a /v/settings/colour") == "green440\n"
    assert await world.shell("box", "cat /v/keys/key; stat -Lc %a /v/keys/key") == "s3cret400\n"
    assert "tmpfs" in await world.shell("box", "grep ' /v/keys ' /proc/mounts")
    assert await world.shell("box", "cat /v/about/labels") == 'app="box"'
    assert await world.shell("box", "cat /v/all/deep/size /v/all/key /v/all/labels") == '4s3cretapp="box"'
    claims = _claims(await world.shell("box", "cat /v/all/token"))
    assert claims["aud"] == ["somebody"]
    assert claims["kubernetes.io"]["pod"]["name"] == "box"
    assert "kubelet.yaml" in await world.shell("box", "ls /v/host")
    ordinary = _claims(await world.shell("box", "cat /var/run/secrets/kubernetes.io/serviceaccount/token"))
    assert ordinary["sub"] == f"system:serviceaccount:{world.namespace}:default"


def _claims(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


async def test_a_changed_config_map_is_seen_inside(world: World) -> None:
    """While the pod runs: all files change at once, and nothing has to be restarted."""
    await world.config_map("settings", a="1", b="1")
    box = sleeper(volumeMounts=[{"name": "settings", "mountPath": "/settings"}])
    await world.run(manifest("box", box, volumes=[{"name": "settings", "configMap": {"name": "settings"}}]))
    began = time.monotonic()
    await world.api.patch(world.path("configmaps", "settings"), {"data": {"a": "2", "b": "2", "c": "2"}})
    wait = "while ! grep -q 2 /settings/a; do sleep 0.05; done; cat /settings/*"
    assert await asyncio.wait_for(world.shell("box", wait), 30) == "222"
    world.stats.append(("ConfigMap changed -> seen in the pod (exec included)", f"{time.monotonic() - began:.2f} s"))


async def test_environment_from_every_source(world: World) -> None:
    await world.config_map("settings", COLOUR="green")
    env = [
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "MIX", "value": "$(NODE)/$(COLOUR)/$$(NODE)/$(NOTHING)"},
    ]
    box = sleeper(env=env, envFrom=[{"configMapRef": {"name": "settings"}}], resources={"limits": {"cpu": "250m"}})
    made = await world.run(manifest("box", box))
    node, ip = made["spec"]["nodeName"], made["status"]["podIP"]
    text = await world.shell("box", 'echo "$NODE $IP $CPU $COLOUR $MIX"; env | grep -c KUBERNETES_SERVICE_HOST')
    assert text == f"{node} {ip} 250 green {node}/green/$(NODE)/$(NOTHING)\n1\n"


async def test_termination_messages(world: World) -> None:
    """From the file; from the end of the log if the file is empty and the container failed and asks for that."""
    boxes = [
        container("file", script="echo -n from the file > /dev/termination-log"),
        container(
            "log", script="echo first; echo last words; exit 1", terminationMessagePolicy="FallbackToLogsOnError"
        ),
        container("none", script="echo not this; exit 0", terminationMessagePolicy="FallbackToLogsOnError"),
    ]
    seen = await world.ended(manifest("box", *boxes, restartPolicy="Never"))
    assert state_of(seen, "file")[1]["message"] == "from the file"
    assert state_of(seen, "log")[1]["message"] == "first\nlast words\n"
    assert "message" not in state_of(seen, "none")[1]
    assert seen["status"]["phase"] == "Failed"


async def test_init_containers_run_in_order(world: World) -> None:
    """One after the other, a failed one again, then a sidecar that stays, then the containers."""
    data = [{"name": "data", "mountPath": "/data"}]
    flaky = "echo two >> /data/log; test $(grep -c two /data/log) = 2"
    inits = [
        container("one", script="echo one >> /data/log", volumeMounts=data),
        container("two", script=flaky, volumeMounts=data),
        sleeper("side", volumeMounts=data, restartPolicy="Always"),
    ]
    main = container(script="echo main >> /data/log; sleep 3600 & wait", volumeMounts=data)
    seen = await world.run(manifest("box", main, initContainers=inits, volumes=[{"name": "data", "emptyDir": {}}]))
    assert await world.shell("box", "cat /data/log") == "one\ntwo\ntwo\nmain\n"
    assert status_of(seen, "two", "initContainerStatuses")["restartCount"] == 1
    assert state_of(seen, "one", "initContainerStatuses")[1]["reason"] == "Completed"
    assert state_of(seen, "side", "initContainerStatuses")[0] == "running"
    assert condition(seen, "Initialized")["status"] == "True"


async def test_probes_decide_what_is_ready_and_what_restarts(world: World) -> None:
    """Readiness by exec, HTTP and TCP; liveness only after the startup probe has passed once."""
    exec_probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    alive = {"exec": {"command": ["sh", "-c", "! test -e /tmp/dead"]}, "periodSeconds": 1, "failureThreshold": 1}
    started = {"exec": {"command": ["test", "-e", "/tmp/started"]}, "periodSeconds": 1, "failureThreshold": 600}
    boxes = [
        sleeper(readinessProbe=exec_probe, livenessProbe=alive, startupProbe=started),
        web("tcp", 8080, ready=False) | {"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}},
    ]
    await world.create(manifest("box", *boxes))
    seen = await world.until("box", lambda one: status_of(one, "tcp").get("ready"), "the TCP probe passes")
    assert status_of(seen)["started"] is False
    await world.shell("box", "touch /tmp/ready /tmp/started")
    await world.ready("box")
    await world.shell("box", "rm /tmp/ready")
    seen = await world.until("box", lambda one: not is_ready(one), "not Ready")
    assert condition(seen, "Ready")["reason"] == "ContainersNotReady"
    await world.event("box", "Unhealthy", "Readiness probe failed")
    await world.shell("box", "touch /tmp/dead")
    await world.until("box", lambda one: status_of(one)["restartCount"] == 1, "restarted by its liveness probe")
    await world.event("box", "Killing", "failed liveness probe")
    assert status_of(await world.get("box"), "tcp")["restartCount"] == 0


async def test_hooks(world: World) -> None:
    """postStart before anything is Ready; preStop before SIGTERM, within the grace period."""
    data = [{"name": "data", "mountPath": "/data"}]
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", "echo post > /data/post"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo pre >> /data/log; sleep 1"]}},
    }
    main = container(
        script="trap 'echo term >> /data/log; exit 0' TERM; sleep 3600 & wait", lifecycle=hooks, volumeMounts=data
    )
    watcher = container(
        "watcher", script="trap 'sleep 4; cat /data/log; exit 0' TERM; sleep 3600 & wait", volumeMounts=data
    )
    await world.run(
        manifest("box", main, watcher, terminationGracePeriodSeconds=30, volumes=[{"name": "data", "emptyDir": {}}])
    )
    assert await world.shell("box", "cat /data/post") == "post\n"
    async with world.kubectl_running("logs", "-f", "box", "-c", "watcher") as kubectl:
        assert kubectl.stdout is not None
        await world.delete("box")
        assert await asyncio.wait_for(kubectl.stdout.read(), 60) == b"pre\nterm\n"


async def test_a_failed_post_start_hook_is_reported(world: World) -> None:
    """The cause is in the container's status, and not in the event, which more people may read (as upstream does)."""
    hooks = {"postStart": {"exec": {"command": ["sh", "-c", "echo no luck >&2; exit 5"]}}}
    await world.create(manifest("box", sleeper(lifecycle=hooks)))

    def reports_the_hook(one: Object) -> bool:
        kind, details = state_of(one)
        return kind == "waiting" and details["reason"] == "PostStartHookError" and "no luck" in details["message"]

    await world.until("box", reports_the_hook, "waits with PostStartHookError and the hook's own words")
    event = await world.event("box", "FailedPostStartHook", "PostStartHook failed")
    assert "no luck" not in event["message"]
    await world.until("box", lambda one: status_of(one).get("restartCount", 0) >= 1, "tried again")


async def test_graceful_deletion(world: World) -> None:
    """Not Ready at once, SIGTERM, the grace period, SIGKILL, and only then gone; sidecars end last."""
    stubborn = container(image=AGNHOST, command=["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
    side = container("side", script="sleep 3600 & wait", restartPolicy="Always")
    await world.run(manifest("stubborn", stubborn, initContainers=[side], terminationGracePeriodSeconds=4))
    await world.run(manifest("obedient", terminationGracePeriodSeconds=60))
    began = time.monotonic()
    await world.delete("stubborn")
    await world.delete("obedient")
    await world.gone("obedient")
    took = time.monotonic() - began
    world.stats.append(("delete -> gone, a container that ends at SIGTERM", f"{took:.2f} s"))
    assert took < 40
    ends: dict[str, str] = {}
    async for seen in world.follow("stubborn"):
        for kind in ("containerStatuses", "initContainerStatuses"):
            for one in seen["status"].get(kind, []):
                if "terminated" in one["state"]:
                    ends[one["name"]] = one["state"]["terminated"]["finishedAt"]
        if seen.get("deleted"):
            break
    took = time.monotonic() - began
    world.stats.append(("delete -> gone, one that ignores SIGTERM, grace 4 s", f"{took:.2f} s"))
    assert took >= 4
    assert ends["main"] <= ends["side"]
