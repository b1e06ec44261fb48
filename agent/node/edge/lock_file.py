"""--lock-file and --exit-on-lock-contention: of kubelets with the same file one works, and makes room when asked.

cmd/kubelet/app/server.go: the lock (flock(2)) is waited for before anything else; who opens the file asks for it.
"""

from __future__ import annotations

import errno
import fcntl
import os

from agent.common.edge.inotify import Inotify
from nodelib.clock import Clock
from nodelib.errors import Permanent

_LOOK = 0.2  # seconds; a blocking flock would keep a thread that nothing can end


class LockFile:
    """Held from acquire() to close(), or to the end of the process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    async def acquire(self, clock: Clock) -> bool:
        """True, once the lock is this process's. Raises Permanent when the file cannot be opened or locked."""
        try:
            self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            # The lock is the open file's, not the process's: a forked helper that outlives this one would keep it.
            os.register_at_fork(after_in_child=self._let_go)
            while not self._locked(self._descriptor):
                await clock.sleep(_LOOK)
        except OSError as error:
            raise Permanent(
                error.strerror or str(error),
                obj=self._path,
                step="take the lock file",
                action="Give a file of a local file system with --lock-file, in a folder that is there.",
            ) from error
        return True

    async def wanted_elsewhere(self) -> None:
        """Until somebody opens the file. Raises Temporary when it cannot be watched."""
        inotify = Inotify()
        try:
            with inotify.watch_file(self._path) as watch:
                await watch.changed()
        finally:
            inotify.close()

    async def close(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
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
