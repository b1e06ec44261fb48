"""Which plugins are registered and deregistered, and when a failed one is tried again."""

from __future__ import annotations

import pytest

from agent.plugins.model import FailedRegistration, PluginInfo, PluginsPlan, PluginsView, Registered, SocketFile
from agent.plugins.plan import failed_again, plan_plugins

OLD, NEW = SocketFile("/r/a.sock", 1, 10), SocketFile("/r/a.sock", 2, 20)
KNOWN = Registered(OLD, PluginInfo("CSIPlugin", "a", "/p/a.sock"))
NOW = 100.0


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        pytest.param(PluginsView(), PluginsPlan(), id="nothing"),
        pytest.param(PluginsView(frozenset({OLD})), PluginsPlan(register=(OLD,)), id="a plugin comes"),
        pytest.param(PluginsView(frozenset({OLD}), {OLD.path: KNOWN}), PluginsPlan(), id="it is registered"),
        pytest.param(PluginsView(frozenset(), {OLD.path: KNOWN}), PluginsPlan((KNOWN,)), id="it leaves"),
        pytest.param(
            PluginsView(frozenset({NEW}), {OLD.path: KNOWN}), PluginsPlan((KNOWN,)), id="restarted: deregistered first"
        ),
        pytest.param(
            PluginsView(frozenset({OLD}), busy=frozenset({OLD.path})), PluginsPlan(), id="being registered already"
        ),
        pytest.param(
            PluginsView(frozenset(), {OLD.path: KNOWN}, busy=frozenset({OLD.path})),
            PluginsPlan(),
            id="deregistering",
        ),
        pytest.param(
            PluginsView(frozenset({OLD}), failed={OLD.path: FailedRegistration(OLD, NOW + 3, 2)}),
            PluginsPlan(wait_until=NOW + 3),
            id="failed, not yet due",
        ),
        pytest.param(
            PluginsView(frozenset({OLD}), failed={OLD.path: FailedRegistration(OLD, NOW - 1, 2)}),
            PluginsPlan(register=(OLD,)),
            id="failed, due",
        ),
        pytest.param(
            PluginsView(frozenset({NEW}), failed={OLD.path: FailedRegistration(OLD, NOW + 3, 2)}),
            PluginsPlan(register=(NEW,)),
            id="another socket owes nothing for the one before",
        ),
    ],
)
def test_plan(view: PluginsView, expected: PluginsPlan) -> None:
    assert plan_plugins(view, NOW) == expected


def test_pauses_grow_to_two_minutes_and_restart_with_a_new_socket() -> None:
    failed, pauses = None, []
    for _ in range(12):
        failed = failed_again(OLD, failed, NOW)
        pauses.append(failed.retry_at - NOW)
    assert pauses[:3] == [0.25, 0.5, 1.0] and pauses[-1] == 120.0
    assert failed_again(NEW, failed, NOW).times == 1


def test_who_has_waited_longest_is_registered_first() -> None:
    """Sockets that come and go all the time, with names before others in the alphabet, were always first."""
    flapping = [SocketFile(f"/r/a{number}.sock", number, 1000 + number) for number in range(100)]
    waiting = SocketFile("/r/z.sock", 1, 999)
    assert waiting in plan_plugins(PluginsView(frozenset([*flapping, waiting])), NOW).register


def test_registrations_that_take_long_leave_places_to_others() -> None:
    found = frozenset(SocketFile(f"/r/{number:03}.sock", number) for number in range(300))
    assert len(plan_plugins(PluginsView(found, registering=(6.0,) * 40), NOW).register) == 32
    assert len(plan_plugins(PluginsView(found, registering=(6.0,) * 250), NOW).register) == 6
    full = plan_plugins(PluginsView(found, registering=(1.0,) * 30 + (3.0,) * 2), NOW)
    assert full.register == () and full.wait_until == NOW + 2
