"""Token buckets for a pod's bandwidth limits (capability `bandwidth`). Pure.

Follows the bandwidth plugin of the containernetworking project (plugins/meta/bandwidth): rates and bursts are given in
bits, and a queue holds the burst and what passes in 25 ms.
"""

from __future__ import annotations

from collections.abc import Mapping

from cni.model import Bucket, LinkPlan

LATENCY = 0.025  # seconds a packet may wait
_UNSET = (1 << 31) - 1  # bits; runtimes that have no burst to give send this or 2**32 - 1
_BURST_SECONDS = 0.1
_SMALLEST_BURST = 64 << 10  # bytes: one packet as the sender's segmentation offload makes it
_LARGEST = (1 << 32) - 1


def bucket(rate: int, burst: int) -> Bucket | None:
    """The token bucket for a rate in bits per second and a burst in bits; None when there is no limit.

    Kubernetes' annotations have no burst, so runtimes send the largest number there is: half a gigabyte would pass
    unlimited. Such a burst is replaced by 100 ms of the rate.
    """
    if not rate:
        return None
    speed = max(1, rate // 8)
    size = int(speed * _BURST_SECONDS) if burst == 0 or burst >= _UNSET else burst // 8
    size = min(max(size, _SMALLEST_BURST), _LARGEST)
    return Bucket(speed, size, min(size + int(speed * LATENCY), _LARGEST))


def differences(plan: LinkPlan, rates: Mapping[str, int]) -> list[str]:
    """The limits that are not in place, one sentence each. `rates`: bytes per second of the token buckets, by link."""
    wanted = plan.bandwidth
    pairs = ((plan.host_ifname, wanted.to_pod, "ingress"), (plan.ifb, wanted.from_pod, "egress"))
    return [
        f"the pod's {direction} limit of {bucket.rate * 8} bit/s is not in place"
        for link, bucket, direction in pairs
        if bucket is not None and rates.get(link) != bucket.rate
    ]
