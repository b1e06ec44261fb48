"""A file system whose server never answers, as a network file system whose server is gone: `python … PATH`.

FUSE without a single answer: whoever looks into PATH waits until this process ends, and gets an error then.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_MNT_DETACH = 2


def main(path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    os.makedirs(path, exist_ok=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    if libc.mount(b"stuck", path.encode(), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "mount fuse", path)
    print("serving", flush=True)
    signal.sigwait({signal.SIGTERM})
    libc.umount2(path.encode(), _MNT_DETACH)
    os.close(device)
    os.rmdir(path)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main(sys.argv[1])
