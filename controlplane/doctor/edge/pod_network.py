"""Prints facts about the pod network of the network namespace it runs in, as JSON; `doctor` runs it in each node.

Standard library only, like nsinit: `python -I -S pod_network.py DNS` (the cluster's DNS Service, "" to leave it out).
"""

import json
import subprocess
import sys
import urllib.request

_MOST = 4 << 20  # bytes of metrics
_SYSCTLS = (
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.bridge.bridge-nf-call-iptables",
    "net.ipv4.conf.all.rp_filter",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
)


def run(*argv: str) -> str:
    """Standard output, "" when the tool is missing or fails."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def links() -> list[dict[str, object]]:
    found = []
    for item in json.loads(run("ip", "-json", "-d", "link") or "[]"):
        name = item.get("ifname", "")
        found.append(
            {
                "name": name,
                "kind": item.get("linkinfo", {}).get("info_kind", ""),
                "mtu": item.get("mtu", 0),
                "master": item.get("master", ""),
                "rp_filter": read(f"/proc/sys/net/ipv4/conf/{name}/rp_filter"),
            }
        )
    return found


def routes() -> list[dict[str, object]]:
    """Of both families; at most as many as a cluster of 5,000 nodes has."""
    found: list[dict[str, object]] = []
    for version in ("-4", "-6"):
        found += json.loads(run("ip", version, "-json", "route", "show") or "[]")
    return [{key: one[key] for key in ("type", "dst") if key in one} for one in found[:20_000]]


def conntrack() -> dict[str, int]:
    """`conntrack -S` summed over the CPUs: drop (table full), insert_failed (two packets raced for one entry)."""
    sums: dict[str, int] = {}
    for word in run("conntrack", "-S").split():
        name, equals, value = word.partition("=")
        if equals and value.isdigit() and name != "cpu":
            sums[name] = sums.get(name, 0) + int(value)
    return sums


def rules(variant: str) -> dict[str, int]:
    """Number of all rules of one variant, and of this node's own."""
    if variant == "legacy" and not read("/proc/net/ip_tables_names"):
        return {"all": 0, "own": 0}  # listing them would create the tables
    lines = [line for line in run(f"iptables-{variant}-save").splitlines() if line.startswith("-A")]
    return {"all": len(lines), "own": sum("KUBE-" in line or "NODEWRIGHT-" in line for line in lines)}


def responses(dns: str) -> dict[str, int]:
    """CoreDNS's answers by code, from the Service's metrics port; {} when it does not answer."""
    host = f"[{dns}]" if ":" in dns else dns
    try:
        with urllib.request.urlopen(f"http://{host}:9153/metrics", timeout=2) as answer:
            text = answer.read(_MOST).decode(errors="replace")
    except (OSError, ValueError):
        return {}
    found: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("coredns_dns_responses_total{"):
            labels, _, value = line.rpartition(" ")
            code = labels.partition('rcode="')[2].partition('"')[0]
            found[code] = found.get(code, 0) + int(float(value))
    return found


def main() -> int:
    dns = sys.argv[1] if len(sys.argv) > 1 else ""
    json.dump(
        {
            "links": links(),
            "routes": routes(),
            "default_link": run("ip", "route", "show", "default"),
            "sysctls": {name: read("/proc/sys/" + name.replace(".", "/")) for name in _SYSCTLS},
            "conntrack": conntrack(),
            "rules": {variant: rules(variant) for variant in ("nft", "legacy")},
            "forward": run("iptables", "-w", "5", "-S", "FORWARD"),
            "dns": responses(dns) if dns else {},
        },
        sys.stdout,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
