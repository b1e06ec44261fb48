"""A short command does little before it begins: one command is built, and no certificates are read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from cli.app import app
from cli.options.application import with_only

PROJECT = Path(__file__).resolve().parents[3]
WHOLE = typer.main.get_command(app)
NAMES = sorted(WHOLE.commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_one_command_is_built_as_it_is_among_all(name: str) -> None:
    lone = typer.main.get_command(with_only(name))
    assert list(lone.commands) == [name]  # type: ignore[attr-defined]
    context = typer.Context(WHOLE, info_name="nodewright")
    whole, alone = (one.commands[name].get_help(context) for one in (WHOLE, lone))  # type: ignore[attr-defined]
    assert alone == whole


@pytest.mark.parametrize("word", ["", "--help", "-h", "statsu", "help"])
def test_every_command_is_there_where_none_is_named(word: str) -> None:
    assert with_only(word) is app


def _printed(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environment},
    )
    return done.stdout.strip()


@pytest.mark.parametrize("given", [{}, {"SSL_CERT_FILE": "/etc/hosts"}], ids=["unset", "set"])
def test_certificates_are_left_unread_only_while_aiohttp_is_imported(given: dict[str, str]) -> None:
    code = """
import os, ssl
before, asked = dict(os.environ), []
read = ssl.SSLContext.set_default_verify_paths
def remember(context):
    asked.append(os.environ.get("SSL_CERT_FILE"))
    read(context)
ssl.SSLContext.set_default_verify_paths = remember
from cli.quick_aiohttp import aiohttp
print(set(asked), os.environ == before)
"""
    assert _printed(code, **given) == "{'/dev/null'} True"


def test_parts_of_pyroute2_come_without_the_rest() -> None:
    code = """
import sys
from nodelib.netlink.pyroute2_parts import part
print(part("iproute.linux").IPRoute.__name__, "pyroute2.ndb" in sys.modules)
import pyroute2
print(pyroute2.NDB.__name__, "pyroute2.ndb" in sys.modules)
"""
    assert _printed(code) == "IPRoute False\nNDB True"
