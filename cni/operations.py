"""ADD, DEL, CHECK and GC on one node: store, plan and apply, in that order. Blocking: each caller has its own thread.

ADD is idempotent: repeated for the same container and interface (the runtime lost the answer, the server was killed
half-way) it keeps the address and makes whatever is missing. DEL and GC succeed when there is nothing to remove. A
step that fails leaves nothing new behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from cni import apply
from cni.model import Address, Attachment, AttachmentKey, LinkFacts, LinkPlan
from cni.plan import bandwidth, hostports, ipam, links, names
from cni.ports import CheckNamespace, NodePorts, OpenLinks, Store
from cni.spec.arguments import Args
from cni.spec.configuration import NetConf
from cni.spec.errors import (
    CHECK_FAILED,
    INVALID_CONFIG,
    INVALID_ENVIRONMENT,
    KERNEL_REFUSED,
    RANGE_EXHAUSTED,
    TRY_AGAIN_LATER,
    UNKNOWN_CONTAINER,
    CNIError,
)
from cni.spec.result import Result
from nodelib.addresses import parse_address
from nodelib.errors import NodewrightError, Temporary

log = logging.getLogger(__name__)

_SHOWN = 5  # conflicts in one error


@dataclass(frozen=True, slots=True)
class Operations:
    """The commands with the edges they need. `store` returns a network's store; `now` is in wall-clock seconds;
    `node_ports`: those that no pod gets.
    """

    open_links: OpenLinks
    store: Callable[[NetConf], Store]
    check_namespace: CheckNamespace
    now: Callable[[], float]
    node_ports: NodePorts

    def add(self, conf: NetConf, args: Args, netns: int) -> tuple[Result, Attachment]:
        """Attach the network namespace `netns`, a descriptor. Raises CNIError."""
        if not conf.ranges:
            raise CNIError(INVALID_CONFIG, "ipam.ranges is empty: there is no address to give", details="Add a subnet.")
        self.check_namespace(netns, args.netns)
        store = self.store(conf)
        with ExitStack() as undo, _coded(args):
            bridge = self._bridge(conf)
            attachment, fresh = _reserve(store, conf, args, self.now(), self.node_ports)
            if fresh:
                undo.callback(store.release, args.key)
            plan = links.plan(conf, args.key, attachment.addresses, bridge)
            seen = None if fresh else apply.observe(plan, self.open_links, netns)
            if seen is None or _wrong(plan, seen):
                if seen is not None:
                    apply.detach(plan.host_ifname, plan.ifb, self.open_links)
                seen = apply.attach(plan, self.open_links, netns, bridge)
            if seen.host is None or seen.pod is None:
                raise CNIError(TRY_AGAIN_LATER, "the veth pair vanished while it was being made")
            undo.pop_all()
            return links.result(plan, conf, args.netns, seen.host, bridge, seen.pod), attachment

    def delete(self, conf: NetConf, key: AttachmentKey) -> Attachment | None:
        """Remove the link, then release the addresses: returns these, None for nothing. Raises CNIError."""
        with _coded(None, key):
            # The address comes last: if a new pod got it while the old link exists, both would answer for it.
            store = self.store(conf)
            held = store.get(key)
            if held is not None:
                apply.forget(conf.bridge, links.neighbours(held.addresses), self.open_links)
            apply.detach(names.host_ifname(conf.name, key), names.ifb_ifname(conf.name, key), self.open_links)
            return store.release(key)

    def check(self, conf: NetConf, args: Args, netns: int) -> None:
        """Raises CNIError(CHECK_FAILED), which lists the differences from what ADD made."""
        self.check_namespace(netns, args.netns)
        store = self.store(conf)
        attachment = store.get(args.key)
        if attachment is None:
            store.refresh()
            attachment = store.get(args.key)
        if attachment is None:
            raise CNIError(UNKNOWN_CONTAINER, f"container {args.key} has no address in network {conf.name}")
        with _coded(args):
            _check_inside(conf, attachment)
            plan = links.plan(conf, args.key, attachment.addresses, self._bridge(conf))
            links.check_prev_result(conf, plan)
            seen = apply.observe(plan, self.open_links, netns)
            wrong = _wrong(plan, seen)
        if wrong:
            raise CNIError(
                CHECK_FAILED,
                "; ".join(wrong),
                obj=str(args.key),
                details="Delete the sandbox: the runtime makes a new one.",
            )

    def collect(self, conf: NetConf, valid: frozenset[AttachmentKey]) -> list[Attachment]:
        """GC: release every attachment of the network that is not in `valid`. A failure does not stop the others."""
        store = self.store(conf)
        store.refresh()
        released, failures = [], []
        for attachment in store.attachments():
            if attachment.key in valid:
                continue
            try:
                self.delete(conf, attachment.key)
                released.append(attachment)
            except CNIError as error:
                failures.append(str(error))
        if failures:
            raise CNIError(KERNEL_REFUSED, f"{len(failures)} attachments remain: {'; '.join(failures[:5])}", step="GC")
        return released

    def _bridge(self, conf: NetConf) -> LinkFacts:
        with self.open_links(None) as node:
            bridge = node.link(conf.bridge)
        if bridge is None:
            raise CNIError(
                TRY_AGAIN_LATER,
                f"the bridge {conf.bridge} does not exist (yet)",
                details="The node's network daemon makes it once the node's podCIDR is known.",
            )
        if bridge.kind != "bridge":
            raise CNIError(
                INVALID_CONFIG,
                f"{conf.bridge} is a {bridge.kind or 'device'}, not a bridge",
                details="Choose another name for bridge in the .conflist.",
            )
        return bridge


def _wrong(plan: LinkPlan, seen: apply.Observed) -> list[str]:
    """The differences from the plan, one sentence each."""
    found = links.differences(plan, seen.host, seen.bridge, seen.pod, seen.addresses, seen.routes)
    return found + bandwidth.differences(plan, seen.rates)


def _reserve(store: Store, conf: NetConf, args: Args, now: float, node_ports: NodePorts) -> tuple[Attachment, bool]:
    """The attachment with one address of each range set, and whether they were taken just now."""
    with store.locked():
        present = store.get(args.key)
        if present is not None and len(present.addresses) == len(conf.ranges) and _inside(conf, present):
            return present, False
        if present is not None:
            store.release(args.key)
        _refuse_taken_ports(store, conf, args, node_ports)
        wanted = _wanted(args)
        chosen: list[Address] = []
        for ranges in conf.ranges:
            version = ranges[0].subnet.version
            address = ipam.pick(ranges, store.taken(), store.last().get(version), wanted.get(version))
            if address is None:
                raise _exhausted(conf, args, store, version)
            chosen.append(address)
        attachment = Attachment(args.key, tuple(chosen), conf.port_mappings, args.pod, now, args.netns)
        if not _claim_all(store, attachment):
            # Another process took one in the meantime. The store knows that now, so choose again.
            return _reserve(store, conf, args, now, node_ports)
        return attachment, True


def _claim_all(store: Store, attachment: Attachment) -> bool:
    """Take all of its addresses, or none."""
    with ExitStack() as undo:
        undo.callback(store.release, attachment.key)
        if not all(store.claim(address, attachment) for address in attachment.addresses):
            return False
        undo.pop_all()
        return True


def _refuse_taken_ports(store: Store, conf: NetConf, args: Args, node_ports: NodePorts) -> None:
    if not conf.port_mappings:
        return
    attachments = store.attachments()
    if problem := hostports.too_many(args.pod, args.key, conf.port_mappings, attachments):
        raise CNIError(TRY_AGAIN_LATER, problem, details="Give the pod fewer, or hostNetwork.")
    own = hostports.of_the_node(conf.port_mappings, node_ports.listeners(), node_ports.clients_ports())
    if own:
        raise CNIError(
            TRY_AGAIN_LATER,
            _listed(own),
            details="Choose another hostPort, or with hostIP an address at which it does not listen.",
        )
    taken = hostports.conflicts(args.key, conf.port_mappings, attachments)
    if taken:
        raise CNIError(
            TRY_AGAIN_LATER,
            _listed(taken),
            details="It becomes free when that pod's sandbox is gone.",
        )


def _listed(conflicts: Sequence[str]) -> str:
    more = f"; and {len(conflicts) - _SHOWN} more" if len(conflicts) > _SHOWN else ""
    return "; ".join(conflicts[:_SHOWN]) + more


def _wanted(args: Args) -> dict[int, Address]:
    """The address that a user asks for with CNI_ARGS "IP=…" (podman and nerdctl --ip), by IP version."""
    text = args.extra.get("IP", "")
    try:
        return {item.version: item for item in (parse_address(part) for part in text.split(",") if part)}
    except ValueError as error:
        raise CNIError(INVALID_ENVIRONMENT, f"CNI_ARGS IP={text} is not an IP address") from error


def _exhausted(conf: NetConf, args: Args, store: Store, version: int) -> CNIError:
    asked = args.extra.get("IP")
    if asked:
        return CNIError(RANGE_EXHAUSTED, f"the address {asked} is taken or not in the ranges of network {conf.name}")
    shown = ", ".join(str(item.subnet) for ranges in conf.ranges for item in ranges if item.subnet.version == version)
    return CNIError(
        RANGE_EXHAUSTED,
        f"no free IPv{version} address in {shown}: {len(store.taken())} are in use",
        details="Give the node a larger podCIDR or fewer pods. Addresses of dead sandboxes are released automatically.",
    )


def _inside(conf: NetConf, attachment: Attachment) -> bool:
    every = [item for ranges in conf.ranges for item in ranges]
    return all(any(address in item for item in every) for address in attachment.addresses)


def _check_inside(conf: NetConf, attachment: Attachment) -> None:
    if not _inside(conf, attachment):
        shown = ", ".join(map(str, attachment.addresses))
        raise CNIError(CHECK_FAILED, f"{shown} is outside the ranges of network {conf.name}: the podCIDR has changed")


@contextmanager
def _coded(args: Args | None, key: AttachmentKey | None = None) -> Iterator[None]:
    """Turn an edge's error into one of the specification's, with the container's name."""
    try:
        yield
    except CNIError:
        raise
    except NodewrightError as error:
        code = TRY_AGAIN_LATER if isinstance(error, Temporary) else KERNEL_REFUSED
        obj = ": ".join(part for part in (str(args.key if args else key), error.obj) if part)
        raise CNIError(code, error.message, obj=obj, step=error.step, details=error.action) from error
