"""A real etcd and kube-apiserver in their own network namespace, for tests of their clients.

Tokens instead of certificates: "admin" is system:masters, a node's token is its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import datetime
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from controlplane.binaries.work import ensure
from controlplane.cluster.edge.roots import cache_root
from nodelib.kube.access import ClusterAccess, save_kubeconfig

_READY_TIMEOUT = 60.0


def built(name: str, release: str = "") -> Path:
    """A program of the table of binaries, of the control plane `release`; minutes if nobody has compiled it yet."""
    return ensure([name], cache_dir=Path(cache_root()), progress=_say, release=release).path(name)


def _say(line: str) -> None:
    # Past pytest's capture: whoever waits for the compiler wants to know.
    print(line, file=sys.__stderr__, flush=True)


@dataclass(frozen=True)
class ApiServer:
    """`server` is reachable from inside the namespace `netns` only."""

    netns: str
    server: str
    address: str
    tokens: Mapping[str, str]

    def access(self, user: str) -> ClusterAccess:
        return ClusterAccess(server=self.server, token=self.tokens[user], insecure=True)


@contextlib.contextmanager
def running(
    folder: Path,
    nodes: Sequence[str],
    signing: str = "",
    service_ranges: str = "10.96.0.0/16",
    users: Sequence[str] = (),
    gates: str = "",
    release: str = "",
) -> Iterator[ApiServer]:
    """Raise both in a new namespace with the address 10.89.250.1; everything is gone afterwards.

    `signing`: with a controller manager that signs node certificates for so long ("20s"). `users`: who has a token of
    this name, besides the nodes. `gates`: feature gates of the API server. `release`: "1.36", a control plane of that
    minor version; by default that of NODEWRIGHT_API_SERVER, or ours.
    """
    binary = built("kube-apiserver", release or os.environ.get("NODEWRIGHT_API_SERVER", ""))
    netns = f"nwn-{secrets.token_hex(3)}"
    address = "10.89.250.1"
    _ip("netns", "add", netns)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        _ip("-n", netns, "link", "set", "lo", "up")
        _ip("-n", netns, "link", "add", "nwn0", "type", "bridge")
        _ip("-n", netns, "addr", "add", f"{address}/24", "dev", "nwn0")
        _ip("-n", netns, "link", "set", "nwn0", "up")
        tokens = _prepare(folder, binary, nodes, users)
        processes.append(_start(netns, folder, "etcd", _etcd(folder)))
        more = _authority(folder) if signing else []
        flags = [*_apiserver(folder, address, service_ranges), *more, *([f"--feature-gates={gates}"] if gates else [])]
        processes.append(_start(netns, folder, "kube-apiserver", flags))
        _wait(netns, processes, folder)
        if signing:
            flags = _controller_manager(folder, tokens["admin"], signing)
            processes.append(_start(netns, folder, "kube-controller-manager", flags))
        yield ApiServer(netns, f"https://{address}:6443", address, tokens)
    finally:
        for process in reversed(processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        _ip("netns", "del", netns)


def run_inside(netns: str, work: Callable[[], Coroutine[Any, Any, None]], timeout: float = 60) -> None:
    """Run `work` in an event loop of a thread that has entered the namespace; its failure is raised here."""
    failure: list[BaseException] = []

    def enter() -> None:
        handle = os.open(f"/run/netns/{netns}", os.O_RDONLY)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(handle, 0x40000000) != 0:  # CLONE_NEWNET; os.setns() came with Python 3.12
                raise OSError(ctypes.get_errno(), "setns")
            asyncio.run(asyncio.wait_for(work(), timeout))
        except BaseException as error:
            failure.append(error)
        finally:
            os.close(handle)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]


def _prepare(folder: Path, binary: Path, nodes: Sequence[str], users: Sequence[str]) -> dict[str, str]:
    for name in ("etcd", "kube-apiserver", "kube-controller-manager"):
        (folder / name).symlink_to(binary)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (folder / "sa.key").write_bytes(pem)
    tokens = {name: secrets.token_hex(16) for name in ("admin", *nodes, *users)}
    lines = [f"{tokens['admin']},admin,admin,system:masters"]
    lines += [f"{tokens[name]},system:node:{name},{name},system:nodes" for name in nodes]
    lines += [f"{tokens[name]},{name},{name}" for name in users]
    tokens["bootstrap"] = secrets.token_hex(16)
    lines.append(f"{tokens['bootstrap']},system:bootstrap:abcdef,b,system:bootstrappers")
    (folder / "tokens.csv").write_text("\n".join(lines) + "\n")
    return tokens


def _etcd(folder: Path) -> list[str]:
    return [str(folder / "etcd"), "--data-dir", str(folder / "data"), "--unsafe-no-fsync"]


def _apiserver(folder: Path, address: str, service_ranges: str) -> list[str]:
    key = str(folder / "sa.key")
    return [
        str(folder / "kube-apiserver"),
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={address}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--token-auth-file={folder / 'tokens.csv'}",
        f"--cert-dir={folder / 'pki'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        f"--service-cluster-ip-range={service_ranges}",
    ]


def _authority(folder: Path) -> list[str]:
    """The cluster's authority, and the flags of an API server that believes it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.TraditionalOpenSSL
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    (folder / "ca.key").write_bytes(pem)
    (folder / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return [f"--client-ca-file={folder / 'ca.crt'}"]


def _controller_manager(folder: Path, token: str, signing: str) -> list[str]:
    access = ClusterAccess("https://127.0.0.1:6443", token=token, insecure=True)
    save_kubeconfig(str(folder / "kcm.conf"), access)
    return [
        str(folder / "kube-controller-manager"),
        f"--kubeconfig={folder / 'kcm.conf'}",
        "--controllers=certificatesigningrequest-signing-controller,certificatesigningrequest-approving-controller",
        f"--cluster-signing-cert-file={folder / 'ca.crt'}",
        f"--cluster-signing-key-file={folder / 'ca.key'}",
        f"--cluster-signing-duration={signing}",
        "--leader-elect=false",
        f"--cert-dir={folder / 'kcm'}",
    ]


def _start(netns: str, folder: Path, name: str, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    with open(folder / f"{name}.log", "wb") as log:
        return subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{netns}", *argv], stdout=log, stderr=log, start_new_session=True
        )


def _wait(netns: str, processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT
    while time.monotonic() < deadline:
        for process in processes:
            if process.poll() is not None:
                raise AssertionError(f"{process.args!r} ended:\n{(folder / 'kube-apiserver.log').read_text()[-3000:]}")
        probe = subprocess.run(
            ["nsenter", f"--net=/run/netns/{netns}", "curl", "-ksf", "https://127.0.0.1:6443/readyz"],
            capture_output=True,
            check=False,
        )
        if probe.returncode == 0:
            return
        time.sleep(0.2)
    raise AssertionError(f"not ready:\n{(folder / 'kube-apiserver.log').read_text()[-3000:]}")


def _ip(*argv: str) -> None:
    subprocess.run(["ip", *argv], check=True, capture_output=True)
