"""Whether `join` trusts the cluster that answers. Pure.

Discovery by token follows kubeadm (cmd/kubeadm/app/discovery/token): cluster-info is signed with the token's secret
(JWS, detached content), and its authority must match a pin if one is given.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from controlplane.host.model import Authority
from nodelib.errors import Invalid, Permanent, WrongUsage
from nodelib.json_values import Json, texts_in
from nodelib.text import one_line

TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_SHOWN = 4  # certificates in an error
HASH_COMMAND = (
    "openssl x509 -pubkey -in /etc/kubernetes/pki/ca.crt | openssl pkey -pubin -outform der"
    " | openssl dgst -sha256 -hex | sed 's/^.* /sha256:/'"
)


def split_token(text: str) -> tuple[str, str]:
    """(id, secret). Raises Invalid."""
    found = TOKEN.fullmatch(text.strip())
    if found is None:
        raise WrongUsage(
            "a bootstrap token is 6 and 16 of a-z and 0-9 with a dot between them",
            obj="--token",
            action="Make one on a control plane node: kubeadm token create --print-join-command.",
        )
    return found[1], found[2]


def is_signed(info: Json, identity: str) -> bool:
    """Whether kube-public/cluster-info has a signature for the token with this id."""
    return bool(texts_in(info.get("data")).get(f"jws-kubeconfig-{identity}"))


def check_server(url: str) -> None:
    """Raises Invalid for a URL to which a token must not be sent, as anybody on the way could read it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port, or brackets
        usable = False
    if not usable:
        raise WrongUsage(
            "is no https URL",
            obj=one_line(url, 256),
            step="check the options",
            action="Name the API server as https://HOST:6443; `kubeadm token create` prints HOST:6443.",
        )


def check_trust(*, pins: Iterable[str], ca_file: str, skip: bool) -> None:
    """Raises Invalid when a join by token has nothing that identifies the cluster, and was not told to go on anyway.

    The token alone proves little: everybody who has it (each machine that joined within its life) can sign
    kube-public/cluster-info for an API server of his own, and that server's pods would be root here. As kubeadm
    (--discovery-token-unsafe-skip-ca-verification, cmd/kubeadm/app/apis/kubeadm/validation).
    """
    if not skip and not ca_file and not tuple(pins):
        raise WrongUsage(
            "a token without the hash of the cluster's authority: whoever has the token could answer in its place",
            obj="--ca-hash",
            step="check the options",
            action="Give --ca-hash sha256:HEX, as `kubeadm token create --print-join-command` prints it on a control"
            f" plane node, or as this does there: {HASH_COMMAND}. Or give --ca-file FILE. Where nobody but the cluster"
            " can answer, --unsafe-skip-ca-verification goes on without.",
        )


def check_admin(config: str, *, insecure: bool, skip: bool) -> None:
    """Raises Invalid for an admin's kubeconfig that does not verify the API server, unless that is wanted."""
    if insecure and not skip:
        raise Invalid(
            "it says insecure-skip-tls-verify: any machine on the way could answer in the cluster's place",
            obj=config,
            step="check the options",
            action="Put the cluster's authority into it (certificate-authority), or add --unsafe-skip-ca-verification.",
        )


def check_cluster_info(info: Json, token: str) -> str:
    """The kubeconfig in kube-public/cluster-info. Raises Permanent when it is not signed with the token."""
    identity, secret = split_token(token)
    data = texts_in(info.get("data"))  # who answers is not known yet, so anything may be in it
    text, signature = data.get("kubeconfig", ""), data.get(f"jws-kubeconfig-{identity}", "")
    if not signature:
        raise Permanent(
            f"the cluster does not know a token {identity}.*, or it has expired",
            obj="--token",
            step="read kube-public/cluster-info",
            action="Make a new one: kubeadm token create --print-join-command.",
        )
    head, _, mac = signature.split(".") if signature.count(".") == 2 else ("", "", "")
    wanted = hmac.new(secret.encode(), f"{head}.{_url64(text.encode())}".encode(), hashlib.sha256).digest()
    if not hmac.compare_digest(_url64(wanted).encode(), mac.encode()):
        raise Permanent(
            "the token's secret is wrong, or another cluster answers at this address",
            obj="--token",
            step="check the signature of kube-public/cluster-info",
            action="Compare it with `kubeadm token list` on a control plane node.",
        )
    return text


def believed(authorities: Iterable[Authority], pins: Iterable[str]) -> bytes:
    """The authority of the cluster, as PEM: of those that it publishes the ones with a pin, all if there is no pin.

    Raises Permanent when none has one. What comes along with a pinned certificate is nobody's word: the cluster's own
    is public, and whoever has the token could sign for it and for one of his own (kubeadm's CheckAny believes both).
    """
    found = list(authorities)
    wanted = [pin.lower() for pin in pins]
    chosen = [one.pem for one in found if not wanted or one.pin in wanted]
    if not chosen:
        shown = ", ".join(one.pin for one in found[:_SHOWN])
        raise Permanent(
            f"the cluster's authority is {shown}, and {', '.join(wanted)} was expected",
            obj="--ca-hash",
            step="check the cluster's authority",
            action="Take the hash that `kubeadm token create --print-join-command` prints there; if that is the one"
            " given, something else answers at this address.",
        )
    return b"".join(chosen)


def not_signed(server: str, *, pins: Iterable[str], ca_file: str) -> Permanent:
    """The API server shows a certificate that none of the believed authorities has signed.

    So it is with one pin while the authority is replaced, if it is that of the other one: cluster-info has both.
    """
    if tuple(pins):
        obj, by = "--ca-hash", "the authorities with these hashes"
        again = "give --ca-hash once for each hash that `kubeadm token create --print-join-command` prints"
    else:
        obj = "--ca-file" if ca_file else "kube-public/cluster-info"
        by, again = f"the authorities in {obj}", "give --ca-file with all of /etc/kubernetes/pki/ca.crt"
    return Permanent(
        f"the certificate of {server} is signed by none of {by}",
        obj=obj,
        step="check the cluster's authority",
        action=f"If the cluster's authority is being replaced, {again} on a control plane node by now; if not,"
        " something else answers at this address.",
    )


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
