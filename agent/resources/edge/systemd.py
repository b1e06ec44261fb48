"""Slices of systemd, by systemctl(1)."""

from __future__ import annotations

import os

from agent.resources.edge.errors import CgroupError
from nodelib.command import CommandError, run
from nodelib.errors import Permanent


class SystemdSlices:
    """Slices, created by systemctl(1): with the systemd driver systemd owns the cgroup tree."""

    async def check(self) -> None:
        """Raises Permanent when systemd is not the init system."""
        if not os.path.isdir("/run/systemd/system"):
            raise Permanent(
                "systemd is not running on this machine",
                obj="cgroupDriver: systemd",
                step="make cgroups",
                action="Set cgroupDriver: cgroupfs, in the container runtime (SystemdCgroup = false) as well.",
            )

    async def ensure(self, unit: str, properties: list[str]) -> None:
        """Start the slice, then set its properties for this boot."""
        try:
            await run(["systemctl", "start", unit], timeout=30)
            if properties:
                await run(["systemctl", "set-property", "--runtime", unit, *properties], timeout=30)
        except CommandError as error:
            raise CgroupError(error.message, obj=unit, step="make slice", action="See journalctl -u " + unit) from error

    async def stop(self, unit: str) -> None:
        done = await run(["systemctl", "stop", unit], timeout=30, check=False)
        if done.returncode not in (0, 5):  # 5: not loaded
            raise CgroupError(done.stderr.decode(errors="replace").strip(), obj=unit, step="stop slice")
