"""A system bus for a node that has no systemd: its configuration, and the programs that are on it."""

from __future__ import annotations

from controlplane.supervisor.model import Program

SOCKET = "/run/dbus/system_bus_socket"  # where every client of the system bus looks

_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_type="method_call"/><allow send_type="signal"/>
    <allow send_destination="*" eavesdrop="true"/><allow receive_sender="*"/>
  </policy>
</busconfig>
"""
# A node's /run is its own: on the host's bus a test would stop the host's own units.
_IN_ITS_FOLDER = 'mkdir -p "${0%/*}"; rm -f "$0"; exec "$@"'


def config(socket: str = SOCKET) -> str:
    """dbus-daemon(1): a bus on which everybody may do everything."""
    return _CONFIG.format(socket=socket)


def programs(
    daemon: str, config_file: str, unit: str, *, python: str, environment: dict[str, str], logs: str
) -> tuple[Program, ...]:
    """The bus, and what stands in for systemd and logind on it: its units are the programs of the supervisor of
    `unit`, all of them in a node."""
    bus = (daemon, f"--config-file={config_file}", "--nofork", "--nopidfile")
    return (
        Program("dbus", ("/bin/sh", "-c", _IN_ITS_FOLDER, SOCKET, *bus), f"{logs}/dbus.log", environment),
        Program(
            "system-bus",
            (python, "-m", "controlplane.standins.system_bus", unit, f"unix:path={SOCKET}"),
            f"{logs}/system-bus.log",
            environment,
        ),
    )
