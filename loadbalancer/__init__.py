"""Addresses for Services of type LoadBalancer: taken from a pool, announced on the link by ARP and NDP.

Upstream has only the API (service.spec.type, service.status.loadBalancer); clouds and add-ons such as MetalLB fill it.
One daemon per node. Start with `plan/allocate.py` (which Service has which address) and `plan/place.py` (which node
announces it), then `leader.py`, which writes both, and `announcer.py`, which answers on the link.
"""
