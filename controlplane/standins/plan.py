"""A system bus for a node that has no systemd: its configuration and its programs. Pure."""

from __future__ import annotations

from controlplane.supervisor.model import Program

SOCKET = "/run/dbus/system_bus_socket"  # where every client expects the system bus

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
# The node has its own /run: on the host's bus a test would stop the host's units.
_IN_ITS_FOLDER = 'mkdir -p "${0%/*}"; rm -f "$0"; exec "$@"'


def config(socket: str = SOCKET) -> str:
    """The configuration of dbus-daemon(1): a bus without any restriction."""
    return _CONFIG.format(socket=socket)


def programs(
    daemon: str, config_file: str, unit: str, *, python: str, environment: dict[str, str], logs: str
) -> tuple[Program, ...]:
    """The bus, and the stand-in for systemd and logind on it.

    Its units are the programs of the supervisor in the folder `unit`; all of them run on one node.
    """
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
