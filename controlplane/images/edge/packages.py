"""Distribution packages as a userland: apt resolves and fetches them as for an empty machine, tar unpacks them.

The host's installed packages are neither read nor changed (apt gets an empty status file). Maintainer scripts do not
run, so what they would make (awk, the certificate bundle) is made here or named in the recipe.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from nodelib.command import CommandError, run_sync
from nodelib.errors import Permanent

# Dependencies of scripts that never run here, or needed only for managing packages and users.
_LEFT_OUT = re.compile(
    r"^(perl.*|libperl.*|libfile-find-rule-perl|libnumber-compare-perl|libtext-glob-perl|usrmerge|usr-is-merged|debconf"
    r"|dpkg|passwd|openssl|libgdbm.*|libsemanage.*|libsepol.*|init-system-helpers|libdebconfclient0|base-passwd"
    r"|util-linux-extra|libsasl2-modules-db|gcc-.*-base|sensible-utils|tzdata)$"
)
_PRUNED = (
    *("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "usr/share/bug"),
    *(
        "usr/share/bash-completion",
        "usr/share/zsh",
        "usr/share/perl5",
        "usr/share/doc-base",
        "usr/share/common-licenses",
    ),
    *("usr/share/gcc", "usr/share/gdb", "usr/share/debconf", "usr/share/i18n", "usr/share/pixmaps", "usr/lib/systemd"),
    *(
        "usr/lib/locale",
        "etc/systemd",
        "etc/init.d",
        "etc/cron.d",
        "etc/cron.daily",
        "etc/default",
        "etc/update-motd.d",
    ),
    *("var/cache/apt", "var/lib/apt", "etc/issue", "etc/issue.net", "etc/motd"),
)
# `dpkg-deb -x` would replace the merged-/usr links by directories: https://wiki.debian.org/UsrMerge
_UNPACK = 'dpkg-deb --fsys-tarfile "$1" | tar --extract --preserve-permissions --keep-directory-symlink -C "$2"'
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def unpack_packages(
    names: Sequence[str], above: Sequence[str], root: Path, debs: Path, progress: Callable[[str], None]
) -> None:
    """Unpack `names` and their dependencies into `root`, without what `above` and its dependencies already hold.

    Downloads are kept in `debs`. Raises Permanent when apt cannot resolve or fetch.
    """
    wanted = resolved(names, above, debs)
    progress(f"fetching and unpacking {len(wanted)} packages ({', '.join(names[:4])}, …)")
    _download([*names, *above], debs)
    root.mkdir(parents=True, exist_ok=True)
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for deb in wanted:
        run_sync(["sh", "-ec", _UNPACK, "unpack", str(debs / deb), str(root)], timeout=120)
    _finish(root)
    if above:  # the lower layer has the directories and merged links
        for name in _MERGED:
            (root / name).unlink()


def resolved(names: Sequence[str], above: Sequence[str], debs: Path) -> list[str]:
    """File names of the packages that unpack_packages() unpacks. Raises Permanent when apt cannot resolve them."""
    below = set(_closure(above, debs)) if above else set()
    wanted = [deb for deb in _closure([*names, *above], debs) if deb not in below]
    return [deb for deb in wanted if not _LEFT_OUT.match(deb.partition("_")[0])]


def distribution() -> str:
    """ID and release of the distribution whose packages apt would fetch, as `debian-bookworm`."""
    fields = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    values = {name: value.strip('"') for name, value in fields.items()}
    return f"{values.get('ID', 'linux')}-{values.get('VERSION_CODENAME', values.get('VERSION_ID', ''))}"


def _finish(root: Path) -> None:
    for path in _PRUNED:
        target = root / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
    for gconv in root.glob("usr/lib/*/gconv"):
        shutil.rmtree(gconv)
    certificates = sorted(root.glob("usr/share/ca-certificates/mozilla/*.crt"))
    if certificates:
        bundle = root / "etc/ssl/certs/ca-certificates.crt"
        bundle.parent.mkdir(parents=True, exist_ok=True)
        bundle.write_bytes(b"".join(path.read_bytes() for path in certificates))
        bundle.chmod(0o644)


def _closure(names: Sequence[str], debs: Path) -> list[str]:
    """File names of the packages that apt would install on an empty machine, in a stable order."""
    found = re.findall(r"^'[^']+' (\S+\.deb) ", _apt(names, debs / "none", "--print-uris"), re.MULTILINE)
    if not found:
        raise Permanent(
            "apt resolved no package", obj=", ".join(names), action="Run apt-get update and see what it reports"
        )
    return sorted(found)


def _download(names: Sequence[str], debs: Path) -> None:
    _apt(names, debs, "--download-only")


def _apt(names: Sequence[str], archives: Path, mode: str) -> str:
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    status = archives / "status"
    status.touch()
    options = {
        "Dir::State::status": status,
        "Dir::State::extended_states": archives / "extended_states",
        "Dir::Cache::archives": f"{archives}/",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
    }
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    argv = ["apt-get", "-y", "-q", *flags, "--no-install-recommends", mode, "install", *names]
    try:
        return run_sync(argv, timeout=900).text
    except CommandError:
        try:
            run_sync(["apt-get", "-q", "update"], timeout=300)
            return run_sync(argv, timeout=900).text
        except CommandError as error:
            raise Permanent(
                error.stderr.decode(errors="replace").strip()[-800:] or error.message,
                obj="image userland",
                step="fetch packages",
                action="Check that apt-get update works on this machine",
            ) from error
