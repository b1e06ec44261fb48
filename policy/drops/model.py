"""A refused packet and what is known of it, frozen."""

from __future__ import annotations

from dataclasses import dataclass

from policy.model import Address, Direction, Name


@dataclass(frozen=True, slots=True)
class Packet:
    """What its header says. `protocol`: the IP protocol; the ports are 0 where it has none.

    `answer`: whether it is plainly a server's answer to a client (a TCP segment with SYN and ACK).
    """

    source: Address
    target: Address
    protocol: int
    source_port: int = 0
    port: int = 0
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Flow:
    """Packets alike, as rules see them: `client` has begun the connection, `server` answers at `port`.

    `direction`: Ingress if the server is the pod that policies isolate, Egress if the client is.
    """

    direction: Direction
    client: Address
    server: Address
    protocol: str
    port: int

    @property
    def isolated(self) -> Address:
        """The address of the pod that policies isolate."""
        return self.server if self.direction is Direction.INGRESS else self.client


@dataclass(frozen=True, slots=True)
class Near:
    """Why one policy did not allow a flow. `rule`: which of its rules came nearest ("ingress[0]"), "" for none.

    `missing`: what the rule lacks: "peer", "port", "peer and port", "" if it allows the flow now, or "rule" when the
    policy has none. `text` is a sentence without the policy's name.
    """

    policy: Name
    rule: str
    missing: str
    text: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Refused packets of one flow, `count` of those that were reported. Times are wall seconds.

    `number` grows with every change of any drop. `policies`: those that isolate the pod; `near`: one entry for each,
    as things were at `explained`, when there had been `policy_changes` of policies. `denied`: the rule of a
    ClusterNetworkPolicy that has refused it, "" for none.
    """

    number: int
    flow: Flow
    first: float
    last: float
    count: int
    client: Name | None
    server: Name | None
    policies: tuple[Name, ...] = ()
    near: tuple[Near, ...] = ()
    explained: float = 0.0
    policy_changes: int = 0
    denied: str = ""
