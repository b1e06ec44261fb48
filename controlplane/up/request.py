"""What the user asked `up` for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.cluster.model import Options
from controlplane.config.model import Ranges
from controlplane.up.releases import ReleaseChoice


@dataclass(frozen=True, slots=True)
class Request:
    """The cluster, its options, and where they and its programs come from."""

    name: str
    options: Options
    explicit: frozenset[str]  # names of the options that were given, on the command line or in a file
    subnet: str = ""
    binaries_dir: Path | None = None
    releases: ReleaseChoice = field(default_factory=ReleaseChoice)  # whose programs are taken instead of built ones
    images: str = ""  # demo or conformance: the images on the nodes from the start; "" for what the cluster has
    project: str = ""
    python: str = ""
    kubeconfig: str | None = ""  # whose file gets the cluster's entries: "" none, None the one that kubectl reads
    kubeconfig_variable: str = ""  # $KUBECONFIG
    ranges: Ranges = field(default_factory=Ranges)
    of_file: frozenset[str] = frozenset()  # names of the options that a file gives, and the command line does not
    environment: Mapping[str, str] = field(default_factory=dict)  # may hold passwords of registries
