"""The address store in memory, with the same meaning as cni.edge.store.DiskStore."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from cni.model import Address, Attachment, AttachmentKey


class FakeStore:
    """`stolen` are addresses that another process takes just before the next claim of them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.records: dict[Address, Attachment] = {}
        self._last: dict[int, Address] = {}
        self.stolen: dict[Address, Attachment] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._lock:
            yield

    def refresh(self) -> None:
        return None

    def get(self, key: AttachmentKey) -> Attachment | None:
        held = tuple(address for address, item in self.records.items() if item.key == key)
        return replace(self.records[held[0]], addresses=held) if held else None

    def attachments(self) -> list[Attachment]:
        keys = dict.fromkeys(item.key for item in self.records.values())
        return [item for key in keys if (item := self.get(key)) is not None]

    def taken(self) -> Collection[Address]:
        return self.records.keys()

    def last(self) -> Mapping[int, Address]:
        return self._last

    def claim(self, address: Address, attachment: Attachment) -> bool:
        if address in self.stolen:
            self.records[address] = self.stolen.pop(address)
        if address in self.records:
            return False
        self.records[address] = attachment
        self._last[address.version] = address
        return True

    def release(self, key: AttachmentKey) -> Attachment | None:
        held = self.get(key)
        for address in held.addresses if held else ():
            del self.records[address]
        return held
