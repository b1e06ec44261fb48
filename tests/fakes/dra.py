"""A cluster without dynamic resource allocation."""

from __future__ import annotations

from agent.devices.work.dra_drivers import Driver
from nodelib.json_values import Json


class NoClaims:
    """devices/work/dra.py Claims."""

    async def claim(self, namespace: str, name: str) -> Json | None:
        return None

    async def delete_slices(self, driver: str) -> None:
        return None


def no_driver(name: str, endpoint: str, service: str) -> Driver:
    raise AssertionError(f"nobody dials {name} here")
