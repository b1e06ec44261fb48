"""Asks every endpoint with every token, in a node's network: JSON on stdin and stdout, see test_access_table.py."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys

import aiohttp

from tests.unit.agent.server.access import ENDPOINTS, METHODS


async def _main() -> None:
    asked = json.load(sys.stdin)
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # no credential of the cluster's own is sent
    found = []
    limit = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), timeout=limit) as session:
        for node, address in asked["nodes"].items():
            for identity, token in asked["tokens"].items():
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                for path in ENDPOINTS:
                    for method in METHODS:
                        url = f"https://{address}:10250{path}"
                        async with session.request(method, url, headers=headers) as answer:
                            text = await answer.text(errors="replace")
                        said = "403" if text.startswith("Forbidden (") else "401" if answer.status == 401 else "in"
                        found.append([node, identity, method, path, said, answer.status])
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    asyncio.run(_main())
