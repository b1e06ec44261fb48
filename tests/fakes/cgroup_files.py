"""A cgroup v2 file system in memory that interprets writes: enabled controllers, files by controller, busy folders."""

from __future__ import annotations

import errno
from collections.abc import Iterator

_FILES = {
    "cpu": ("cpu.weight", "cpu.max"),
    "memory": ("memory.max", "memory.high", "memory.current", "memory.min", "memory.low"),
    "pids": ("pids.max",),
    "hugetlb": ("hugetlb.2MB.max",),
}


class FakeCgroupFiles:
    """Cgroup files in memory. `procs`: processes by folder; `unkillable` survive cgroup.kill; `busy` rmdirs fail."""

    def __init__(self, top: str = "/cg", controllers: str = "cpu memory pids hugetlb") -> None:
        self.top = top
        self.procs: dict[str, set[int]] = {}
        self.unkillable: set[int] = set()
        self.busy = 0
        self._files: dict[str, dict[str, str]] = {
            top: {"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.procs": "1"}
        }

    def mkdir(self, path: str) -> None:
        parent, _, _ = path.rpartition("/")
        if path in self._files:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        enabled = self._folder(parent)["cgroup.subtree_control"]
        files = {"cgroup.controllers": enabled, "cgroup.subtree_control": "", "cgroup.kill": ""}
        for controller in enabled.split():
            files.update(dict.fromkeys(_FILES.get(controller, ()), "max"))
        self._files[path] = files

    def rmdir(self, path: str) -> None:
        self._folder(path)
        if self.folders(path) or self.procs.get(path) or self.busy > 0:
            self.busy -= 1
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        del self._files[path]

    def read(self, path: str) -> str:
        folder, _, file = path.rpartition("/")
        if file == "cgroup.procs":
            self._folder(folder)
            return "".join(f"{pid}\n" for pid in sorted(self.procs.get(folder, ())))
        try:
            return self._folder(folder)[file]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path) from None

    def write(self, path: str, text: str) -> None:
        folder, _, file = path.rpartition("/")
        if file not in self._folder(folder):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if file == "cgroup.kill":
            for place in self.procs:
                if place == folder or place.startswith(f"{folder}/"):
                    self.procs[place] &= self.unkillable
        elif file == "cgroup.subtree_control":
            self._enable_controllers(folder, text.split())
        else:
            self._files[folder][file] = text

    def folders(self, path: str) -> list[str]:
        self._folder(path)
        return [name.rpartition("/")[2] for name in self._files if name.rpartition("/")[0] == path]

    def below(self, path: str) -> Iterator[_Group]:
        found = [name for name in self._files if name == path or name.startswith(f"{path}/")]
        for name in sorted(found, key=lambda name: -name.count("/")):
            yield _Group(self, name)

    def offer(self, path: str, controllers: str) -> None:
        """The kernel offers these controllers in a folder, whatever was handed down to it."""
        self._folder(path)["cgroup.controllers"] = controllers

    def exists(self, path: str) -> bool:
        return path in self._files

    def dump(self) -> dict[str, dict[str, str]]:
        """What was written, by folder below the top."""
        return {
            path.removeprefix(self.top): {
                name: text for name, text in files.items() if not name.startswith("cgroup.") and text != "max"
            }
            for path, files in sorted(self._files.items())
            if path != self.top
        }

    def _enable_controllers(self, folder: str, words: list[str]) -> None:
        if self.procs.get(folder) and folder != self.top:
            raise OSError(errno.EBUSY, "Device or resource busy", folder)
        offered = self._files[folder]["cgroup.controllers"].split()
        wanted = [word.removeprefix("+") for word in words]
        if not set(wanted) <= set(offered):
            raise OSError(errno.ENOENT, "No such file or directory", folder)
        now = self._files[folder]["cgroup.subtree_control"].split()
        self._files[folder]["cgroup.subtree_control"] = " ".join(sorted({*now, *wanted}))

    def _folder(self, path: str) -> dict[str, str]:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path) from None


class _Group:
    """One cgroup, as below() shows it."""

    def __init__(self, files: FakeCgroupFiles, path: str) -> None:
        self._files, self._path = files, path
        self.name = path.rpartition("/")[2]

    def read(self, file: str) -> str:
        return self._files.read(f"{self._path}/{file}")

    def write(self, file: str, text: str) -> None:
        self._files.write(f"{self._path}/{file}", text)

    def remove(self) -> None:
        self._files.rmdir(self._path)
