"""The layers of which several images are made: userlands, agnhost, nginx. Pure.

Contents follow the Dockerfiles of test/images in Kubernetes, over Debian (or Ubuntu) packages instead of Alpine's.
"""

from __future__ import annotations

from controlplane.images.model.oci import directory, file, symlink
from controlplane.images.model.recipe import (
    Built,
    BusyBox,
    FileOf,
    Files,
    LayerRecipe,
    Packages,
    RegistryTree,
    Upstream,
)
from controlplane.images.plan.image_names import BUSYBOX_NAME, PAUSE_NAME

_PASSWD = """root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
bin:x:2:2:bin:/bin:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
"""
_GROUP = """root:x:0:
daemon:x:1:
bin:x:2:
tty:x:5:
www-data:x:33:
nogroup:x:65534:
"""

SKELETON = Files(
    (
        *(directory(path) for path in ("dev", "etc", "home", "proc", "run", "sys", "usr/bin", "usr/sbin", "var/log")),
        directory("root", 0o700),
        directory("tmp", 0o1777),
        directory("var/tmp", 0o1777),
        file("etc/passwd", _PASSWD),
        file("etc/group", _GROUP),
        file("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"),
    )
)

# The userland that tests with agnhost use: the packages of its Dockerfile under their Debian names.
USERLAND = (
    *("base-files", "bash", "coreutils", "dash", "findutils", "grep", "gzip", "hostname", "mawk", "mount"),
    *("sed", "tar"),
    *("bind9-dnsutils", "ca-certificates", "curl", "iperf", "iproute2", "iputils-ping", "libc-bin"),
    *("netcat-openbsd", "procps", "socat", "util-linux", "wget"),
)

# Milliseconds in `date` are off by default; `tc` uses kernel headers that Linux 6.8 dropped (CBQ), see
# https://bugs.busybox.net/show_bug.cgi?id=15934
_BUSYBOX_OPTIONS = (("CONFIG_STATIC", "y"), ("CONFIG_TC", "n"), ("CONFIG_FEATURE_DATE_NANO", "y"))
BUSYBOX_LAYER = LayerRecipe("busybox", (SKELETON, BusyBox(_BUSYBOX_OPTIONS)))

DEBIAN_LAYER = LayerRecipe(
    "Debian userland",
    (
        Packages(
            USERLAND,
            links=(
                symlink("usr/bin/awk", "mawk"),
                symlink("usr/bin/nc", "nc.openbsd"),
                symlink("usr/local/bin/iperf", "/usr/bin/iperf"),
                symlink("var/run", "/run"),  # base-files makes it when it is configured
            ),
        ),
        SKELETON,
    ),
)

# The packages are unpacked, not configured: these are the links that update-alternatives would make.
_IPTABLES = tuple(
    symlink(f"usr/sbin/{family}{suffix}", "xtables-nft-multi")
    for family in ("iptables", "ip6tables")
    for suffix in ("", "-save", "-restore")
)
IPTABLES_LAYER = LayerRecipe(
    "iptables", (Packages(("iptables", "nftables", "conntrack", "kmod"), above=USERLAND, links=_IPTABLES),)
)

_AGNHOST_FILES = (
    Built("agnhost", "agnhost"),
    Built("coredns", "coredns"),
    Upstream("test/images/agnhost/porter/localhost.crt", "localhost.crt"),
    Upstream("test/images/agnhost/porter/localhost.key", "localhost.key", 0o600),
    RegistryTree(PAUSE_NAME, "pause", "testing"),
    # Tests that change the image of a running container watch what this program of Alpine's busybox prints.
    FileOf(BUSYBOX_NAME, "bin/busybox", "usr/bin/nmeter"),
    Files(
        (
            # busybox goes by its name; the probes of port forwarding's tests ask it who listens
            symlink("usr/bin/netstat", "nmeter"),
            symlink("agnhost-2", "agnhost"),
            directory("uploads"),
            directory("home/user-defined-in-image", uid=1000, gid=1000),
            file("etc/passwd", _PASSWD + "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n"),
            file(
                "etc/group",
                _GROUP + "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n",
            ),
        )
    ),
)
AGNHOST_LAYER = LayerRecipe("agnhost", _AGNHOST_FILES)

# Upstream's nginx image serves plain HTTP on port 80 and logs to the container's output.
_NGINX_CONF = """user www-data;
worker_processes 1;
pid /run/nginx.pid;
error_log /dev/stderr notice;
events { worker_connections 256; }
http {
  include /etc/nginx/mime.types;
  access_log /dev/stdout;
  server { listen 80 default_server; root /usr/share/nginx/html; index index.html; }
}
"""
NGINX_LAYER = LayerRecipe(
    "nginx",
    (
        Packages(("nginx",), above=USERLAND),
        Files(
            (
                file("etc/nginx/nginx.conf", _NGINX_CONF),
                directory("var/log/nginx"),
                directory("var/lib/nginx"),
                file("usr/share/nginx/html/index.html", "<html><body>Welcome to nginx!</body></html>\n"),
            )
        ),
    ),
)
