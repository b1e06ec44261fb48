"""The addresses in use, one file each: <dataDir>/<network>/<address>. Decides nothing.

These hold at all times, whichever process is killed:
- An address is taken as long as its file exists. The file appears complete (it is written under a hidden name, then
  link(2) fails if the name exists), so two writers never get the same address and nobody reads half a record.
- A record has its container's ID, so that the addresses of a dead process can be found and released.
The index in memory is only a copy: another process (the standalone plugin) may write here too. `claim` notices that,
and `refresh` reads it. It is replaced with each change, so that whoever looks does not wait for the disk. Nothing is
fsynced: after a power loss no pod is left that could have an address, and a record that was lost is dropped.
"""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cni.model import Address, Attachment, AttachmentKey, PortMapping
from cni.spec.errors import IO_FAILURE, CNIError
from nodelib.json_values import Json, decode

log = logging.getLogger(__name__)

_LAST = ".last-{}"
_DRAFT = ".draft-"
_DRAFT_LIFETIME = 60  # seconds; older ones belong to a writer that was killed


class DiskStore:
    """One network's records. Thread-safe. Every failure of the disk raises CNIError(IO_FAILURE)."""

    def __init__(self, data_dir: str, network: str) -> None:
        self._folder = Path(data_dir) / network
        self._lock = threading.RLock()
        self._records: Mapping[Address, Attachment] = {}
        self._last: Mapping[int, Address] = {}
        self._drafts = itertools.count()
        with _translated(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sweep_drafts()
        self.refresh()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock from reading `taken` until the `claim`: well below a millisecond, and without network calls."""
        with self._lock:
            yield

    def refresh(self) -> None:
        """Read the folder again."""
        with self._lock, _translated(self._folder):
            names = [entry.name for entry in os.scandir(self._folder)]
            found: dict[Address, Attachment] = {}
            for name in names:
                address = _address(name)
                if address is None:
                    continue
                record = self._read(address)
                if record is not None:
                    found[address] = record
            self._records = found
            for version in (4, 6):
                with suppress(FileNotFoundError, ValueError):
                    last = ip_address((self._folder / _LAST.format(version)).read_text().strip())
                    self._last = {**self._last, version: last}

    def get(self, key: AttachmentKey) -> Attachment | None:
        found = {address: record for address, record in self._records.items() if record.key == key}
        return _together(key, found) if found else None

    def attachments(self) -> list[Attachment]:
        found: dict[AttachmentKey, dict[Address, Attachment]] = {}
        for address, record in self._records.items():
            found.setdefault(record.key, {})[address] = record
        return [_together(key, records) for key, records in found.items()]

    def taken(self) -> Collection[Address]:
        return self._records.keys()

    def last(self) -> Mapping[int, Address]:
        """The address assigned last, by IP version."""
        return self._last

    def claim(self, address: Address, attachment: Attachment) -> bool:
        """Take `address` for `attachment`. False: somebody else has it, and the index shows that now."""
        draft = self._folder / f"{_DRAFT}{os.getpid()}-{next(self._drafts)}"
        with self._lock, _translated(self._folder):
            try:
                draft.touch(mode=0o600)
                draft.write_text(json.dumps(_as_json(attachment)))
                os.link(draft, self._folder / str(address))
            except FileExistsError:
                record = self._read(address)
                if record is not None:
                    self._records = {**self._records, address: record}
                return False
            finally:
                draft.unlink(missing_ok=True)
            self._records = {**self._records, address: attachment}
            self._last = {**self._last, address.version: address}
            self._write_last(address)
            return True

    def release(self, key: AttachmentKey) -> Attachment | None:
        """Release all addresses of `key`; None when it has none, not even on disk."""
        with self._lock, _translated(self._folder):
            held = self.get(key)
            if held is None:
                self.refresh()
                held = self.get(key)
            if held is None:
                return None
            for address in held.addresses:
                record = self._read(address)
                if record is None or record.key == key:
                    (self._folder / str(address)).unlink(missing_ok=True)
                self._records = {one: record for one, record in self._records.items() if one != address}
            return held

    def _read(self, address: Address) -> Attachment | None:
        path = self._folder / str(address)
        try:
            return _from_json(decode(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s is not a record of an attachment (%s): dropped, the address is free again", path, error)
            path.unlink(missing_ok=True)
            return None

    def _write_last(self, address: Address) -> None:
        """What fails is said by nobody: the address is taken by now, and this only matters to whoever starts next."""
        draft = self._folder / f"{_DRAFT}{os.getpid()}-{next(self._drafts)}"
        try:
            draft.write_text(str(address))
            draft.replace(self._folder / _LAST.format(address.version))
        except OSError as error:
            log.debug("%s: %s", draft, error)
            with suppress(OSError):
                draft.unlink()

    def _sweep_drafts(self) -> None:
        with _translated(self._folder):
            for entry in os.scandir(self._folder):
                if entry.name.startswith(_DRAFT):
                    with suppress(FileNotFoundError):
                        if time.time() - entry.stat().st_mtime > _DRAFT_LIFETIME:
                            os.unlink(entry.path)


def _together(key: AttachmentKey, records: Mapping[Address, Attachment]) -> Attachment:
    """A record lists all addresses that were asked for; only those whose file exists are taken."""
    record = next(iter(records.values()))
    held = tuple(address for address in record.addresses if address in records)
    return Attachment(key, held, record.port_mappings, record.pod, record.created, record.netns)


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        action = (
            "Free some space." if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Check that folder and its owner."
        )
        raise CNIError(
            IO_FAILURE,
            f"{error.strerror}: {error.filename or folder}",
            obj=str(folder),
            step="address store",
            details=action,
        ) from error


def _address(name: str) -> Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def _as_json(attachment: Attachment) -> Json:
    return {
        "containerID": attachment.key.container_id,
        "ifname": attachment.key.ifname,
        "addresses": [str(address) for address in attachment.addresses],
        "portMappings": [asdict(mapping) for mapping in attachment.port_mappings],
        "pod": attachment.pod,
        "created": attachment.created,
        "netns": attachment.netns,
    }


def _from_json(raw: Any) -> Attachment:
    return Attachment(
        key=AttachmentKey(str(raw["containerID"]), str(raw["ifname"])),
        addresses=tuple(ip_address(text) for text in raw["addresses"]),
        port_mappings=tuple(PortMapping(**item) for item in raw.get("portMappings", ())),
        pod=str(raw.get("pod", "")),
        created=float(raw.get("created", 0)),
        netns=str(raw.get("netns", "")),
    )
