"""Objects that an API server stores and Go's clients read, beside those of others."""

from __future__ import annotations

import asyncio
import time

import orjson
import pytest
from aiohttp import web

from nodelib.json_values import Json
from nodelib.kube import raw_json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector
from nodelib.tasks import cancel_and_wait
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.nonsense import Nonsense
from tests.waiting import until

SERVICES = "/api/v1/services"
MARK = b'"MARK"'
RAW = {
    "1,100 levels": b'{"f:a":' * 1100 + b"{}" + b"}" * 1100,
    "9,900 levels": b'{"f:a":' * 9900 + b"{}" + b"}" * 9900,
    "no UTF-8": b'{"f:\xff":{}}',
    "half of a surrogate pair": rb'{"f:\ud800":{}}',
}


def service(name: str, fields: str = "") -> Json:
    fields_of = {"managedFields": [{"manager": "x", "operation": "Update", "fieldsV1": fields}]} if fields else {}
    return {"metadata": {"namespace": "default", "name": name, **fields_of}, "spec": {"type": "ClusterIP"}}


def with_raw(raw: bytes) -> Nonsense:
    async def answer(request: web.Request, true: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(true.replace(MARK, raw))
        if "watch" in request.query:
            await asyncio.sleep(30)
        return response

    return answer


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("raw", RAW.values(), ids=RAW)
async def test_managed_fields_of_one_object_keep_no_other_from_being_listed(raw: bytes, streams: bool) -> None:
    async with FakeApiServer() as api:
        await api.put(f"{SERVICES}/before", service("before"))
        await api.put(f"{SERVICES}/hostile", service("hostile", "MARK"))
        await api.put(f"{SERVICES}/after", service("after"))
        api.nonsense = lambda request: with_raw(raw) if streams or "watch" not in request.query else None
        async with KubeClient(ClusterAccess(api.url), user_agent="test", streaming_lists=streams) as client:
            reflector = Reflector(client, SERVICES, name="services")
            task = asyncio.create_task(reflector.run())
            try:
                await until(reflector.synced.is_set, seconds=5)
            finally:
                await cancel_and_wait(task)
    assert [name for _, name in reflector.store] == ["before", "hostile", "after"]
    hostile = reflector.store["default", "hostile"]
    assert hostile["spec"] == {"type": "ClusterIP"}
    orjson.dumps(hostile)


async def test_managed_fields_are_not_kept() -> None:
    """300 levels can be read but not be written: /pods would fail for all pods of the node."""
    deep: Json = {}
    for _ in range(300):
        deep = {"f:a": deep}
    async with FakeApiServer() as api:
        made = service("deep")
        made["metadata"]["managedFields"] = [{"manager": "x", "fieldsV1": deep}]
        await api.put(f"{SERVICES}/deep", made)
        async with KubeClient(ClusterAccess(api.url), user_agent="test") as client:
            orjson.dumps((await client.get(SERVICES))["items"])
            orjson.dumps(await client.get(f"{SERVICES}/deep"))


@pytest.mark.parametrize("raw", [b'{"a":"' + b"x" * 1_000_000, b"{" + b'"a":"' * 250_000, b"{" + b'"a",' * 250_000])
def test_what_has_no_end_is_looked_through_once(raw: bytes) -> None:
    started = time.process_time()
    assert raw_json.standard(raw) is None
    assert time.process_time() - started < 1


def test_only_what_is_nested_deeply_is_left_out() -> None:
    deep = b"[" * 2000 + b"1" + b"]" * 2000
    found = raw_json.standard(b'{"a":"]}\\"","b":' + deep + b',"c":[1,{}],"d":"\\ud83d\\ude00 \\\\ud800 \\udc00"}')
    assert found is not None
    read = orjson.loads(found)
    assert read["a"] == ']}"' and read["c"] == [1, {}] and read["d"] == "😀 \\ud800 \ufffd"
    assert raw_json.standard(b'{"a": 1}') is None and raw_json.standard(b"<html>") is None


def test_a_large_object_with_such_fields_is_no_work() -> None:
    """A megabyte of them, written again and again: whatever else is watched waits for it."""
    wide = b",".join(b'"f:%d ]}":{"f:\xff\\"[":{}}' % number for number in range(45_000))
    fields = b'[{"manager":"x","fieldsV1":{' + wide + b',"f:deep":' + RAW["9,900 levels"] + b"}}]"
    raw = b'{"metadata":{"name":"x","managedFields":' + fields + b'},"spec":{"type":"ClusterIP"}}'
    started = time.process_time()
    found = raw_json.standard(raw)
    assert time.process_time() - started < 0.08
    assert found is not None
    assert orjson.loads(found) == {"metadata": {"name": "x", "managedFields": []}, "spec": {"type": "ClusterIP"}}
