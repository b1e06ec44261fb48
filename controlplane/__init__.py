"""The reference cluster and the host: what raises and removes clusters on one machine, and makes a host a node.

One folder for each capability. From the top: suites, host, up, kubeadm, doctor, cluster, images, binaries, standins,
supervisor, machine; a folder imports only from those below it. In each, model holds frozen values, plan pure decisions,
edge whatever touches the machine, and work carries the plans out. Closest upstream: sigs.k8s.io/kind, cmd/kubeadm and
hack/local-up-cluster.sh of k8s.io/kubernetes. Open up/work.py first: it reads as the list of what `up` does.
"""
