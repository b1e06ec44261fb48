"""Builds the two C programs: pause, and busybox from the distribution's source package."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from controlplane.images.model.oci import Entry, directory, file, symlink
from controlplane.machine.edge.compiler import need_compiler
from nodelib.command import CommandError, run_sync
from nodelib.errors import Permanent

Progress = Callable[[str], None]


def compile_c(source: str, target: Path, progress: Progress) -> None:
    """Compile one C file into a static, stripped binary."""
    need_compiler(progress)
    target.parent.mkdir(parents=True, exist_ok=True)
    run_sync(
        ["gcc", "-Os", "-static", "-s", "-Wall", "-Wl,--build-id=none", "-x", "c", "-o", str(target), "-"],
        stdin=source.encode(),
        timeout=120,
    )


def build_busybox(options: Sequence[tuple[str, str]], work: Path, progress: Progress) -> tuple[Entry, ...]:
    """/bin/busybox and a link in /bin for each of its programs; building takes about two minutes on two cores.

    Debian's own binary will not do: its configuration lacks `nmeter` and milliseconds in `date`, and its shell
    drops environment variables whose names are no identifiers ("data-1"), which upstream's suites use.
    """
    need_compiler(progress)
    progress("fetching the source of busybox")
    tree = _unpack(_fetch_source("busybox", work), work / "tree")
    progress("building busybox (about 2 min)")
    try:
        binary = _make(tree, options)
    except CommandError as error:
        raise Permanent(
            error.stderr.decode(errors="replace").strip()[-1000:] or error.message,
            obj="busybox image",
            step=f"make in {tree}",
            action="See the compiler's message above",
        ) from error
    return busybox_entries(binary)


def busybox_entries(binary: Path) -> tuple[Entry, ...]:
    """/bin/busybox and its links. Raises CommandError when it does not say which programs it has."""
    programs = sorted(set(run_sync([str(binary), "--list"], timeout=10).text.split()) - {"busybox", "linuxrc"})
    return (
        directory("bin"),
        file("bin/busybox", binary, 0o755),
        *(symlink(f"bin/{name}", "busybox") for name in programs),
        symlink("usr/bin/env", "/bin/env"),
    )


def _make(tree: Path, options: Sequence[tuple[str, str]]) -> Path:
    make = ["make", "-C", str(tree), "KCONFIG_NOTIMESTAMP=1"]
    run_sync([*make, "defconfig"], timeout=300)
    config = tree / ".config"
    text = config.read_text()
    for name, value in options:
        text = re.sub(rf"^(# )?{name}[= ].*$", f"{name}={value}", text, flags=re.MULTILINE)
    config.write_text(text)
    run_sync([*make, "-j2", "busybox"], timeout=1800)
    return tree / "busybox"


def _unpack(archive: Path, target: Path) -> Path:
    # The tar program, not tarfile: its "data" filter came with Python 3.11.4, and Debian 12 has 3.11.2.
    target.mkdir(parents=True, exist_ok=True)
    run_sync(["tar", "--extract", f"--file={archive}", f"--directory={target}", "--no-same-owner"], timeout=120)
    return next(path for path in target.iterdir() if path.is_dir())


def _fetch_source(package: str, work: Path) -> Path:
    """Fetch the unpatched upstream archive of a source package; apt checks its hash against the signed index."""
    lists, sources = work / "lists", work / "sources.list"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    sources.write_text(source_lines(_apt_sources(), _codename()))
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": lists,
        "Dir::Cache::srcpkgcache": "",
        "Dir::Cache::pkgcache": "",
        "APT::Sandbox::User": "root",
    }
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    try:
        run_sync(["apt-get", "-q", *flags, "update"], timeout=300)
        run_sync(["apt-get", "-q", *flags, "source", "--download-only", package], timeout=300, cwd=str(work))
    except CommandError as error:
        raise Permanent(
            error.stderr.decode(errors="replace").strip()[-800:] or error.message,
            obj=f"source package {package}",
            step="apt-get source",
            action="Check that apt-get update works on this machine",
        ) from error
    return next(iter(work.glob(f"{package}_*.orig.tar.*[!c]")))


def source_lines(configured: str, codename: str) -> str:
    """The machine's apt sources as deb-src lines: only those of the release itself, no third party's.

    Reads the one-line format and deb822 stanzas, separated by blank lines.
    """
    lines = []
    for stanza in re.split(r"\n\s*\n", configured):
        fields = {key.lower(): value for key, value in re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", stanza, re.MULTILINE)}
        if "uris" in fields:
            key = fields.get("signed-by", "").strip()
            option = f"[signed-by={key}] " if key else ""
            for uri in fields["uris"].split():
                suites = [suite for suite in fields.get("suites", "").split() if suite.startswith(codename)]
                lines += [f"deb-src {option}{uri} {suite} {fields.get('components', 'main')}" for suite in suites]
            continue
        for line in stanza.splitlines():
            words = re.sub(r"\[[^]]*\]", "", line).split()
            if len(words) >= 4 and words[0] == "deb" and words[2].startswith(codename):
                lines.append(re.sub(r"^\s*deb\s", "deb-src ", line))
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _apt_sources() -> str:
    parts = Path("/etc/apt/sources.list.d")
    files = [Path("/etc/apt/sources.list"), *sorted([*parts.glob("*.list"), *parts.glob("*.sources")])]
    return "\n\n".join(path.read_text() for path in files if path.is_file())


def _codename() -> str:
    found = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    return found.group(1) if found else "stable"
