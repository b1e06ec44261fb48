"""Where the cluster machinery touches the machine: namespaces, links, cgroups, processes, files."""
