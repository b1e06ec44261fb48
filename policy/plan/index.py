"""Which pods a selection selects, kept up to date change by change: not every selector is tried on every pod. Pure.

It is owned by one sync at a time. What changed since somebody asked for it is collected until `take_changed()`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from nodelib.firewall.objects import Family
from policy.cluster_model import ClusterPolicy
from policy.model import (
    VERSION,
    Address,
    Name,
    NamedPort,
    NodePlace,
    NodeSelection,
    Pod,
    Policy,
    Selection,
    Tracked,
)
from policy.plan.labels import among

_MOST_VALUES = 64  # of a requirement, by which a selection is looked up
# Where a selection is looked up: a namespace or "" for any, and a label, its key alone (any value), or none.
_Place = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class Changes:
    """Since the last plan. `tracked`: what has other pods, or pods with other addresses or ports; `namespaces`: those
    with other NetworkPolicies.
    """

    tracked: set[Tracked] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)


class Index:
    """Pods, the labels of namespaces, and the selections and named ports that somebody asked for.

    `runtimes`: what addresses the runtime gave to pods of this node, in its order. Whoever deletes a pod by force, its
    object alone, has chosen for how long its processes go on. So a pod that has not ended when it goes is kept as one
    that has *left*: under a name of its own, selected as it was and nobody's peer, until its address is another's.
    """

    def __init__(self) -> None:
        self.pods: dict[Name, Pod] = {}
        self.policies_of: dict[str, dict[Name, Policy]] = {}  # by namespace
        self.cluster_policies: dict[str, ClusterPolicy] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._of_namespace: dict[str, set[Name]] = {}
        self._members: dict[Selection, set[Name]] = {}
        self._named: dict[NamedPort, set[Name]] = {}
        # Of each pod what it is in, and where to look for what it may be in: a namespace may have 20,000 policies.
        self._in: dict[Name, set[Selection | NamedPort]] = {}
        self._places: dict[_Place, dict[Selection, None]] = {}
        self._keys: dict[str, Counter[str]] = {}  # of the labels in these places, by namespace
        self._held: dict[Name, tuple[str, tuple[Address, ...]]] = {}
        self._owners: dict[Address, Name] = {}
        self._having: dict[Address, set[Name]] = {}  # the pods that have an address
        self.runtimes: dict[Name, tuple[Address, ...]] = {}
        # Of the pods that have left: the labels that their namespaces had.
        self._left: dict[Name, Mapping[str, str] | None] = {}
        self._nodes: dict[str, NodePlace] = {}
        self._node_selections: set[NodeSelection] = set()
        self._changed: set[Tracked] = set()
        self._namespaces_changed: set[str] = set()

    def set_pod(self, name: Name, pod: Pod | None) -> None:
        """A pod as it is now, None: it is gone."""
        old = self.pods.get(name)
        if old is not None and not old.ended and (pod is None or pod.uid != old.uid):
            self._leave(old)
        if pod is not None:
            self._return(pod)
            pod = self._without_others(self._with_held(pod))
        else:
            self._release(name)
        self._put(name, pod)

    def _put(self, name: Name, pod: Pod | None) -> None:
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
        self._namespaces_changed.add(name.namespace)
        policies = self.policies_of.setdefault(name.namespace, {})
        if policy is None:
            policies.pop(name, None)
        else:
            policies[name] = policy
        if not policies:
            del self.policies_of[name.namespace]

    def set_cluster_policy(self, name: str, policy: ClusterPolicy | None) -> None:
        """A policy as it is now, None: it is gone."""
        if policy is None:
            self.cluster_policies.pop(name, None)
        else:
            self.cluster_policies[name] = policy

    def set_node(self, name: str, node: NodePlace | None) -> None:
        """A Node as it is now, None: it is gone."""
        if self._nodes.get(name) == node:
            return
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        self._changed |= self._node_selections

    def hold(self, name: Name, uid: str, addresses: tuple[Address, ...]) -> None:
        """The addresses that a pod of this node has just been given.

        They are its own from now on, whatever the status of another pod says: that may be late, or not be true.
        """
        for other in {self._owners[one] for one in addresses if one in self._owners} & self._left.keys():
            self._bury(other)
        self._release(name)
        self._held[name] = (uid, addresses)
        self.runtimes[name] = addresses
        self._owners.update(dict.fromkeys(addresses, name))
        claimed = {other for one in addresses for other in self._having.get(one, ())}
        for one in (name, *claimed - {name}):
            if one in self.pods:
                self.set_pod(one, self.pods[one])

    @property
    def size(self) -> int:
        """How many pods there are, roughly: the next power of two."""
        return 1 << len(self.pods).bit_length()

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

    def subject(self, name: Name, family: Family) -> Address | None:
        """The address by which policies that select the pod apply to it."""
        if name in self._left:
            return next((one for one in self.runtimes[name] if one.version == VERSION[family]), None)
        return self.pods[name].address(family)

    def members(self, selection: Selection) -> set[Name]:
        """The pods that it selects. From the first call on they are kept up to date."""
        found = self._members.get(selection)
        if found is None:
            names: Iterable[Name] = self.pods
            if selection.namespace:
                names = self._of_namespace.get(selection.namespace, ())
            found = {name for name in names if self._fits(selection, self.pods[name])}
            self._members[selection] = found
            for place in _places_of(selection):
                if place not in self._places:
                    self._keys.setdefault(place[0], Counter())[place[1]] += 1
                self._places.setdefault(place, {})[selection] = None
            for name in found:
                self._in.setdefault(name, set()).add(selection)
        return found

    def having(self, port: NamedPort) -> set[Name]:
        """The pods that have a port of that name. From the first call on they are kept up to date."""
        found = self._named.get(port)
        if found is None:
            found = {name for name, pod in self.pods.items() if port in pod.ports}
            self._named[port] = found
            for name in found:
                self._in.setdefault(name, set()).add(port)
        return found

    def watch_nodes(self, selection: NodeSelection) -> None:
        """From the first call on, a change of Nodes is one of the selection's addresses, too."""
        self._node_selections.add(selection)

    def node_addresses(self, selection: NodeSelection) -> set[Address]:
        """The addresses of the nodes that it selects."""
        fitting = [one for one in self._nodes.values() if selection.nodes.fits(one.labels)]
        return {address for one in fitting for address in one.addresses}

    def forget(self, keep: set[Tracked]) -> None:
        """Keep only these up to date."""
        self._node_selections &= keep
        for selection in [one for one in self._members if one not in keep]:
            self._leave_out(selection, self._members.pop(selection))
            for place in _places_of(selection):
                del self._places[place][selection]
                if not self._places[place]:
                    del self._places[place]
                    self._forget_key(*place[:2])
        for port in [one for one in self._named if one not in keep]:
            self._leave_out(port, self._named.pop(port))

    def take_changed(self) -> Changes:
        """What changed since the last call."""
        changes = Changes(self._changed, self._namespaces_changed)
        self._changed, self._namespaces_changed = set(), set()
        return changes

    def put_back(self, changes: Changes) -> None:
        """No plan has taken these into account."""
        self._changed |= changes.tracked
        self._namespaces_changed |= changes.namespaces

    def _leave(self, pod: Pod) -> None:
        """By the API the pod is no more, or another one has its name. What the runtime gave it may be in use yet."""
        mine = tuple([one for one in self.runtimes.get(pod.name, ()) if self._owners.get(one) == pod.name])
        if not mine:
            return
        self._release(pod.name)
        name = _name_of_left(pod)
        self.runtimes[name] = mine
        self._owners.update(dict.fromkeys(mine, name))
        self._left[name] = self._namespaces.get(name.namespace)
        self._put(name, replace(pod, name=name, addresses=(), ports={}, ended=True))

    def _return(self, pod: Pod) -> None:
        """Its object is there again: that of a static pod is made anew when somebody deletes it."""
        left = _name_of_left(pod)
        if left in self._left and not pod.ended:
            mine = self.runtimes[left]
            self._bury(left)
            self.runtimes[pod.name] = mine
            self._owners.update(dict.fromkeys(mine, pod.name))

    def _bury(self, left: Name) -> None:
        self._release(left)
        del self._left[left]
        self._put(left, None)

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
        before = self._in.pop(name, set[Selection | NamedPort]())
        now: set[Selection | NamedPort] = set()
        if pod is not None:
            now.update(one for one in self._possible(pod) if self._fits(one, pod))
            now.update(port for port in pod.ports if port in self._named)
            if now:
                self._in[name] = now
        self._changed |= (before ^ now) | (now if visible else set())
        for one in before - now:
            self._names_in(one).discard(name)
        for one in now - before:
            self._names_in(one).add(name)

    def _possible(self, pod: Pod) -> Iterator[Selection]:
        """The selections that may select the pod: all others do not."""
        for namespace in (pod.name.namespace, ""):
            yield from self._places.get((namespace, "", None), ())
            # A pod may have 40,000 labels, and its namespace as many policies: few are in both.
            known = self._keys.get(namespace)
            for key in among(known.keys(), pod.labels) if known else ():
                yield from self._places.get((namespace, key, None), ())
                yield from self._places.get((namespace, key, pod.labels[key]), ())

    def _forget_key(self, namespace: str, key: str) -> None:
        keys = self._keys[namespace]
        keys[key] -= 1
        if not keys[key]:
            del keys[key]
        if not keys:
            del self._keys[namespace]

    def _names_in(self, one: Selection | NamedPort) -> set[Name]:
        return self._members[one] if isinstance(one, Selection) else self._named[one]

    def _leave_out(self, one: Selection | NamedPort, names: Iterable[Name]) -> None:
        for name in names:
            left = self._in[name]
            left.discard(one)
            if not left:
                del self._in[name]

    def _fits(self, selection: Selection, pod: Pod) -> bool:
        if selection.namespace:
            return pod.name.namespace == selection.namespace and selection.pods.fits(pod.labels)
        namespace = pod.name.namespace
        labels = self._left[pod.name] if pod.name in self._left else self._namespaces.get(namespace)
        # A namespace that is not known (yet) is selected by nothing, not even by a selector for all.
        if labels is None or selection.namespaces is None or not selection.namespaces.fits(labels):
            return False
        return selection.pods.fits(pod.labels)


def _places_of(selection: Selection) -> list[_Place]:
    """A pod that it selects is found at one of them: by one of the labels that it must have, if it must have any."""
    values = [one for one in selection.pods.requirements if one.operator == "In"]
    least = min(values, key=lambda one: (len(one.values), one.key), default=None)
    if least is not None and len(least.values) <= _MOST_VALUES:
        return [(selection.namespace, least.key, value) for value in sorted(least.values)]
    keys = sorted(one.key for one in selection.pods.requirements if one.operator in ("In", "Exists"))
    return [(selection.namespace, keys[0] if keys else "", None)]


def _name_of_left(pod: Pod) -> Name:
    return Name(pod.name.namespace, f"{pod.name.name} {pod.uid}")  # no pod of the API has a blank in its name


def _shown(pod: Pod) -> tuple[object, ...]:
    return pod.addresses, pod.ports, pod.node
