"""Who has an address, and which policies there are: what is needed to name the ends of a packet. Pure.

It shares its pods with the enforcer's index, which only syncs may touch.
"""

from __future__ import annotations

from collections.abc import Mapping

from policy.model import Address, Name, Party, Pod, Policy


class Directory:
    """Pods by their addresses, the labels of namespaces, and policies. `node`: whose pods are known apart."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._here: set[Name] = set()
        self._policies: dict[Name, Policy] = {}
        self.policy_changes = 0  # how often a policy has come, changed or gone
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._pods: dict[Name, Pod] = {}
        self._by_address: dict[Address, Name] = {}
        self._held: dict[Name, tuple[str, tuple[Address, ...]]] = {}
        self._owners: dict[Address, Name] = {}

    def set_pod(self, name: Name, pod: Pod | None) -> None:
        """A pod as it is now, None: it is gone."""
        for address in self.of(name):
            if self._by_address.get(address) == name:
                del self._by_address[address]
        held = self._held.get(name)
        if held is not None and (pod is None or pod.ended or held[0] not in ("", pod.uid) or _same(held[1], pod)):
            del self._held[name]
        self._here.discard(name)
        if pod is None or pod.ended:
            self._release(name)
        if pod is None:
            self._pods.pop(name, None)
            return
        self._pods[name] = pod
        if pod.node == self._node and not pod.ended and not pod.host_network:
            self._here.add(name)
        for address in self.of(name):
            if self._owners.get(address, name) == name:
                self._by_address[address] = name

    def hold(self, name: Name, uid: str, addresses: tuple[Address, ...]) -> None:
        """A pod of this node has just been given these: its status does not have them yet, or has older ones.

        They are its own from now on, whatever the status of another pod says.
        """
        pod = self._pods.get(name)
        if pod is not None:
            self.set_pod(name, None)
            self._held[name] = (uid, addresses)
            self._owners.update(dict.fromkeys(addresses, name))
            self.set_pod(name, pod)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels, None: it is gone."""
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels

    def set_policy(self, name: Name, policy: Policy | None) -> None:
        """A policy as it is now, None: it is gone."""
        self.policy_changes += 1
        if policy is None:
            self._policies.pop(name, None)
        else:
            self._policies[name] = policy

    @property
    def policy_count(self) -> int:
        return len(self._policies)

    def pod(self, name: Name) -> Pod | None:
        return self._pods.get(name)

    def policy(self, name: Name) -> Policy | None:
        return self._policies.get(name)

    def party(self, address: Address) -> Party:
        """Who has the address."""
        name = self._by_address.get(address)
        pod = None if name is None else self._pods.get(name)
        return Party(address, pod, None if pod is None else self._namespaces.get(pod.name.namespace))

    def addresses(self, address: Address) -> tuple[Address, ...]:
        """All addresses of the pod that has this one; nothing if none has it."""
        name = self._by_address.get(address)
        return () if name is None else self.of(name)

    def isolates(self, policy: Name, pod: Name) -> bool:
        """Whether the policy selects the pod."""
        known, found = self._policies.get(policy), self._pods.get(pod)
        if known is None or found is None or pod.namespace != known.selection.namespace:
            return False
        return known.selection.pods.fits(found.labels)

    def selected_here(self, policy: Name) -> list[Name]:
        """The pods of this node that the policy selects."""
        return [pod for pod in sorted(self._here) if self.isolates(policy, pod)]

    def _release(self, name: Name) -> None:
        for address in [one for one, owner in self._owners.items() if owner == name]:
            del self._owners[address]

    def of(self, name: Name) -> tuple[Address, ...]:
        """The addresses of a pod."""
        pod = self._pods.get(name)
        if pod is None:
            return ()
        held = self._held.get(name)
        return pod.addresses if held is None else held[1]


def _same(addresses: tuple[Address, ...], pod: Pod) -> bool:
    return set(addresses) == set(pod.addresses)
