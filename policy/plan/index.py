"""Which pods a selection selects, kept up to date change by change: not every selector is tried on every pod. Pure.

It is owned by one sync at a time. Names of the selections whose pods changed are collected until `take_changed()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from policy.model import Address, Name, NamedPort, Pod, Policy, Selection


class Index:
    """Pods, the labels of namespaces, and the selections and named ports that somebody asked for.

    `runtimes`: what addresses the runtime gave to pods of this node, in its order.
    """

    def __init__(self) -> None:
        self.pods: dict[Name, Pod] = {}
        self.policies: dict[Name, Policy] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._of_namespace: dict[str, set[Name]] = {}
        self._members: dict[Selection, set[Name]] = {}
        self._named: dict[NamedPort, set[Name]] = {}
        self._held: dict[Name, tuple[str, tuple[Address, ...]]] = {}
        self._owners: dict[Address, Name] = {}
        self._having: dict[Address, set[Name]] = {}  # the pods that have an address
        self.runtimes: dict[Name, tuple[Address, ...]] = {}
        self._changed: set[Selection | NamedPort] = set()

    def set_pod(self, name: Name, pod: Pod | None) -> None:
        """A pod as it is now, None: it is gone."""
        if pod is not None:
            pod = self._without_others(self._with_held(pod))
        else:
            self._release(name)
        old = self.pods.get(name)
        if pod == old:
            return
        for address in frozenset(old.addresses) if old else ():
            self._having[address].discard(name)
            if not self._having[address]:
                del self._having[address]
        for address in pod.addresses if pod else ():
            self._having.setdefault(address, set()).add(name)
        if pod is None:
            self.pods.pop(name, None)
            self._of_namespace.get(name.namespace, set()).discard(name)
        else:
            self.pods[name] = pod
            self._of_namespace.setdefault(name.namespace, set()).add(name)
        self._place(name, pod, visible=old is None or pod is None or _shown(old) != _shown(pod))

    def set_policy(self, name: Name, policy: Policy | None) -> None:
        """A policy as it is now, None: it is gone."""
        if policy is None:
            self.policies.pop(name, None)
        else:
            self.policies[name] = policy

    def hold(self, name: Name, uid: str, addresses: tuple[Address, ...]) -> None:
        """The addresses that a pod of this node has just been given.

        They are its own from now on, whatever the status of another pod says: that may be late, or not be true.
        """
        self._release(name)
        self._held[name] = (uid, addresses)
        self.runtimes[name] = addresses
        self._owners.update(dict.fromkeys(addresses, name))
        claimed = {other for one in addresses for other in self._having.get(one, ())}
        for one in (name, *claimed - {name}):
            if one in self.pods:
                self.set_pod(one, self.pods[one])

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels, None: it is gone."""
        if self._namespaces.get(name) == labels:
            return
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels
        for pod in tuple(self._of_namespace.get(name, ())):
            self._place(pod, self.pods[pod], visible=False)

    def members(self, selection: Selection) -> set[Name]:
        """The pods that it selects. From the first call on they are kept up to date."""
        found = self._members.get(selection)
        if found is None:
            names: Iterable[Name] = self.pods
            if selection.namespace:
                names = self._of_namespace.get(selection.namespace, ())
            found = {name for name in names if self._fits(selection, self.pods[name])}
            self._members[selection] = found
            self._changed.add(selection)
        return found

    def having(self, port: NamedPort) -> set[Name]:
        """The pods that have a port of that name. From the first call on they are kept up to date."""
        found = self._named.get(port)
        if found is None:
            found = {name for name, pod in self.pods.items() if port in pod.ports}
            self._named[port] = found
            self._changed.add(port)
        return found

    def forget(self, keep: set[Selection | NamedPort]) -> None:
        """Keep only these up to date."""
        for selection in [one for one in self._members if one not in keep]:
            del self._members[selection]
        for port in [one for one in self._named if one not in keep]:
            del self._named[port]

    def take_changed(self) -> set[Selection | NamedPort]:
        """What has other pods, or pods with other addresses or ports, than at the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def _release(self, name: Name) -> None:
        self._held.pop(name, None)
        self.runtimes.pop(name, None)
        for address in [one for one, owner in self._owners.items() if owner == name]:
            del self._owners[address]

    def _with_held(self, pod: Pod) -> Pod:
        """The runtime's addresses count until the status has some: it comes later, and may be of an older sandbox."""
        held = self._held.get(pod.name)
        if held is None:
            if pod.ended:
                self._release(pod.name)
            return pod
        uid, addresses = held
        if pod.ended or (pod.uid and uid and pod.uid != uid):
            self._release(pod.name)
            return pod
        if set(pod.addresses) == set(addresses):
            del self._held[pod.name]
            return pod
        return replace(pod, addresses=addresses)

    def _without_others(self, pod: Pod) -> Pod:
        """Without addresses that the runtime has given to another pod of this node."""
        own = tuple([one for one in pod.addresses if self._owners.get(one, pod.name) == pod.name])
        return pod if len(own) == len(pod.addresses) else replace(pod, addresses=own)

    def _place(self, name: Name, pod: Pod | None, *, visible: bool) -> None:
        """Put a pod into the selections that select it. `visible`: its addresses or ports changed."""
        for selection, found in self._members.items():
            before, now = name in found, pod is not None and self._fits(selection, pod)
            if before != now or (now and visible):
                self._changed.add(selection)
            (found.add if now else found.discard)(name)
        for port, found in self._named.items():
            before, now = name in found, pod is not None and port in pod.ports
            if before != now or (now and visible):
                self._changed.add(port)
            (found.add if now else found.discard)(name)

    def _fits(self, selection: Selection, pod: Pod) -> bool:
        if selection.namespace:
            return pod.name.namespace == selection.namespace and selection.pods.fits(pod.labels)
        labels = self._namespaces.get(pod.name.namespace)
        # A namespace that is not known (yet) is selected by nothing, not even by a selector for all.
        if labels is None or selection.namespaces is None or not selection.namespaces.fits(labels):
            return False
        return selection.pods.fits(pod.labels)


def _shown(pod: Pod) -> tuple[object, ...]:
    return pod.addresses, pod.ports, pod.node
