"""What touches the world for the pod network: netlink, namespaces, files, sysctls, nft. Decides nothing.

Upstream's counterparts are pkg/ip, pkg/ns, pkg/netlinksafe and host-local's backend/disk, all of
containernetworking/plugins. Start with `netlink.py`. `cni/ports.py` has the interfaces through which the rest of the
package uses this folder.
"""
