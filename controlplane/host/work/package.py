"""`nodewright package`: makes the Debian package from the committed tree and the Python packages of the daemons."""

from __future__ import annotations

import email.utils
import gzip
import hashlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from controlplane.cluster.edge.roots import cache_root
from controlplane.host.plan import package as plan
from controlplane.host.work import payload
from controlplane.machine.edge.files import refuse_of_others
from controlplane.progress import Progress
from nodelib.command import run_sync
from nodelib.errors import Invalid

_TIMEOUT = 600.0  # seconds for dpkg-deb on a busy machine


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of the packaged tree."""

    id: str
    time: int  # seconds since the epoch

    @property
    def date(self) -> str:
        """With minutes, so that the package of a later commit is the newer one."""
        return f"{datetime.fromtimestamp(self.time, UTC):%Y%m%d%H%M}"

    @property
    def stamp(self) -> str:
        """The time as in RFC 2822."""
        return email.utils.formatdate(self.time)


def write(folder: Path, project: Path, python: str, progress: Progress) -> Path:
    """Make the package in `folder`. Blocking.

    Raises Invalid without dpkg-deb or for a folder that cannot be made, CommandError when git, pip or dpkg-deb fails.
    """
    if not folder.is_dir() and (folder.exists() or not folder.parent.is_dir()):
        raise Invalid(
            "is not a directory" if folder.exists() else "no such directory",
            obj=str(folder if folder.exists() else folder.parent),
            step="package",
            action="Name a directory that exists, or a new one in it. Nothing was written.",
        )
    refuse_of_others(folder, "package")
    if not shutil.which("dpkg-deb"):
        raise Invalid("is not installed", obj="dpkg-deb", step="package", action="Run this on Debian or Ubuntu.")
    work = Path(cache_root(), "package")
    work.mkdir(parents=True, exist_ok=True)
    settings = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    with progress.step("Python packages") as say:
        lock = work / "runtime.lock"
        lock.write_text(plan.runtime_lock((project / "requirements.lock").read_text(), settings["dependencies"]))
        say(payload.install_packages(work / "site", lock, python))
    with progress.step("project") as say:
        say(payload.archive_project(work / "project.tar", project))
    commit = _commit(project)
    name = plan.version(settings["version"], commit.date, commit.id)
    with progress.step("package") as say, tempfile.TemporaryDirectory(dir=work, prefix="stage-") as stage:
        made = build(Path(stage), work, name, commit, folder)
        say(f"{made.stat().st_size / 1e6:.1f} MB")
    return made


def build(stage: Path, work: Path, version: str, commit: Commit, folder: Path) -> Path:
    """Lay out the contents of `work` (site/, project.tar) below `stage`, and make the .deb in `folder`.

    The same commit and versions give the same bytes, wherever and whenever pip installed `work`
    (https://reproducible-builds.org/docs/source-date-epoch/).
    """
    site, project = (stage / path.lstrip("/") for path in (plan.SITE, plan.PROJECT))
    skip = shutil.ignore_patterns("__pycache__", "python-version", "bin")
    shutil.copytree(work / "site", site, symlinks=True, ignore=skip)
    _forget_scripts(site)
    project.mkdir(parents=True)
    run_sync(["tar", "-C", str(project), "-xf", str(work / "project.tar"), *plan.TREE])
    for file in plan.files():
        _write(stage / file.path.lstrip("/"), file.text)
    doc = stage / plan.DOC.lstrip("/")
    _write(doc / "copyright", plan.copyright_file())
    changes = plan.changelog(version, commit.stamp).encode()
    (doc / "changelog.gz").write_bytes(gzip.compress(changes, mtime=commit.time))
    _set_modes(stage)
    for file in plan.files():
        (stage / file.path.lstrip("/")).chmod(file.mode)
    made_for = plan.platform(path.read_text() for path in site.glob("*.dist-info/WHEEL"))
    _write_control(stage, version, made_for)
    _set_times(stage, commit.time)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{plan.NAME}_{version}_{made_for.architecture}.deb"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit.time)}
    # Debian's default, xz, took a hundred times as long (7 s for a tree without Python packages, on a busy machine).
    target.unlink(missing_ok=True)  # it writes through a link
    argv = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(stage), str(target)]
    run_sync(argv, timeout=_TIMEOUT, env=environment)
    return target


def _commit(project: Path) -> Commit:
    line = run_sync(["git", "-C", str(project), "log", "-1", "--format=%H %ct"]).text.split()
    return Commit(line[0], int(line[1]))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _forget_scripts(site: Path) -> None:
    """Take the scripts of bin/, which are not packaged, off pip's lists: their checksums follow the Python used."""
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not line.startswith("../../bin/")), encoding="utf-8")


def _set_times(stage: Path, moment: int) -> None:
    """Give all files one time: dpkg-deb only lowers times that are later than SOURCE_DATE_EPOCH."""
    for path in (stage, *stage.rglob("*")):
        os.utime(path, (moment, moment), follow_symlinks=False)


def _set_modes(stage: Path) -> None:
    """Debian's usual modes, whatever umask and pip made: scripts are executable, libraries are not."""
    stage.chmod(0o755)
    for path in stage.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or _is_script(path) else 0o644)


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return path.stat().st_mode & 0o100 != 0 and file.read(2) == b"#!"


def _write_control(stage: Path, version: str, made_for: plan.Platform) -> None:
    held = sorted(path for path in stage.rglob("*") if path.is_file() and not path.is_symlink())
    names = {path: str(path.relative_to(stage)) for path in held}
    size = sum(path.stat().st_size for path in held) // 1024
    control = stage / "DEBIAN"
    _write(control / "control", plan.control(version, made_for, _installed(), size))
    _write(control / "conffiles", plan.conffiles(f"/{name}" for name in names.values()))
    sums = (f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {names[path]}\n" for path in held)
    _write(control / "md5sums", "".join(sums))
    for name, text in plan.scripts().items():
        _write(control / name, text)
        (control / name).chmod(0o755)


def _installed() -> Mapping[str, str]:
    """Installed versions of plan.RUNTIME on this machine; missing packages are left out."""
    asked = ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\n", *plan.RUNTIME]
    rows = [line.split() for line in run_sync(asked, check=False).text.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "installed"}
