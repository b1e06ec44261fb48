"""The command line: every `nodewright` command, and the process that joins the agent with the pod network.

`app.py` is the application. `options/` declares the commands, their options and their help; `commands/` does the
work; `display/` writes to the terminal. `bench/`, `explain/` and `why/` hold the logic of the larger commands.
Nothing else imports this package, which may import all others. Upstream's counterparts are kind, kubeadm and the
cmd/ folders of k8s.io/kubernetes. Start with `options/cluster.py` and follow one command.
"""
