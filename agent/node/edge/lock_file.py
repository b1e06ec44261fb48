"""--lock-file and --exit-on-lock-contention: of kubelets with the same file, one runs at a time.

cmd/kubelet/app/server.go: a kubelet waits for the lock (flock(2)) before anything else; opening the file asks its
holder to exit.
"""

from __future__ import annotations

import errno
import fcntl
import os

from agent.common.edge.inotify import Inotify
from nodelib.clock import Clock
from nodelib.errors import Permanent

_RETRY_INTERVAL = 0.2  # seconds; a blocking flock would hold a thread that cannot be cancelled


class LockFile:
    """The lock is held from acquire() to close(), or to the end of the process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    async def acquire(self, clock: Clock) -> bool:
        """Return True once this process holds the lock. Raises Permanent when the file cannot be opened or locked."""
        try:
            self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            # The lock belongs to the open file, not to the process: a forked helper that lives longer would keep it.
            os.register_at_fork(after_in_child=self._release)
            while not self._locked(self._descriptor):
                await clock.sleep(_RETRY_INTERVAL)
        except OSError as error:
            raise Permanent(
                error.strerror or str(error),
                obj=self._path,
                step="take the lock file",
                action="Give --lock-file a file on a local file system, in a folder that exists.",
            ) from error
        return True

    async def wait_for_contention(self) -> None:
        """Wait until somebody opens the file. Raises Temporary when it cannot be watched."""
        inotify = Inotify("the lock file")
        try:
            with inotify.watch_file(self._path) as watch:
                await watch.changed()
        finally:
            inotify.close()

    async def close(self) -> None:
        self._release()

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @staticmethod
    def _locked(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            return False
        return True
