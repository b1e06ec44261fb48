"""What kind, k3d, minikube and kubectl call it: a wrong word leads to ours. Pure."""

from __future__ import annotations

# By the words that come after `nodewright`.
_ELSEWHERE = {
    "addons disable": "`./nodewright addons remove` removes one",
    "addons enable": "`./nodewright addons add` adds one",
    "build": "`docker build` makes an image, `./nodewright load` puts it onto the nodes",
    "cluster": "`./nodewright up` creates one, `./nodewright down` removes it, `./nodewright clusters` lists them",
    "config": "`./nodewright up --config FILE` makes a cluster from a file, `./nodewright kubeconfig` prints its path",
    "create": "`./nodewright up` creates a cluster",
    "dashboard": "`./nodewright view` serves a page of the cluster",
    "delete": "`./nodewright down` removes a cluster, `./nodewright node remove` a node",
    "export kubeconfig": "`./nodewright kubeconfig` prints the path of the file",
    "export-logs": "`./nodewright export logs DIR` writes them into a folder",
    "get": "`./nodewright clusters` lists clusters, `./nodewright kubectl get` what is in one",
    "image": "`./nodewright load` puts images onto the nodes, `./nodewright images` shows them",
    "ip": "`./nodewright status` shows the nodes' addresses",
    "list": "`./nodewright clusters` lists clusters",
    "logs": "`./nodewright export logs` collects them, `./nodewright kubectl logs` shows those of a pod",
    "ls": "`./nodewright clusters` lists clusters",
    "node create": "`./nodewright node add` adds one",
    "node delete": "`./nodewright node remove` removes one",
    "node list": "`./nodewright status` lists the nodes",
    "node ls": "`./nodewright status` lists the nodes",
    "pause": "`./nodewright stop` ends all of its processes and keeps its state",
    "profile": "`./nodewright clusters` lists clusters, and --name chooses one",
    "prune": "`./nodewright down` removes a cluster, `./nodewright uninstall --purge` everything on this machine",
    "ps": "`./nodewright status` lists daemons and nodes, `./nodewright clusters` clusters",
    "purge": "`./nodewright down` removes a cluster, `./nodewright uninstall --purge` everything on this machine",
    "ssh": "`./nodewright shell NODE` opens a shell on a node",
    "tunnel": "this machine reaches the addresses of type LoadBalancer, as `./nodewright service NAME` shows",
    "unpause": "`./nodewright start` brings a stopped cluster back",
}
_KUBECTL = (
    *("annotate", "apply", "attach", "autoscale", "cordon", "cp", "debug", "describe", "diff", "drain", "edit"),
    *("events", "exec", "explain", "expose", "label", "patch", "port-forward", "replace", "rollout", "run", "scale"),
    *("set", "taint", "top", "uncordon", "wait"),
)


def pointer(path: str, word: str) -> str:
    """What to say of an unknown command: `path` has the words before it, after `nodewright`; "" for nothing."""
    if not path and word in _KUBECTL:
        return f"`./nodewright kubectl {word}` is kubectl's"
    return _ELSEWHERE.get(f"{path} {word}".strip(), "")
