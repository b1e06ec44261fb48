"""Process 1 of a node: it collects orphans and keeps the node's supervisor running.

`python -I -S init.py UNIT PROJECT LOG READY LOCK`: UNIT is the supervisor's folder, READY and LOCK are descriptors. It
closes READY after a line, and keeps LOCK (an flock on a file outside of the node) as long as it lives. The kernel kills
every process of the node when it ends, as when a machine loses its power. SIGHUP: the supervisor's specification was
written; SIGTERM: stop the supervisor and its programs in order, then end. Standard library only, and as little of that
as possible: each node has one. Counterpart: tini, and what systemd does for a machine.
"""

import os
import signal
import sys
import time

_PAUSES = (0.1, 10.0)  # seconds before a supervisor that ended is started again: doubled as long as it ends at once
_STEADY = 10.0  # seconds; a supervisor that ran this long is started again after the first pause
_KEEP_LOG = 1 << 20  # bytes


class Init:
    """The supervisor's life."""

    def __init__(self, unit: str, project: str) -> None:
        self.unit = unit
        self.argv = [sys.executable, "-S", "-m", "controlplane.supervisor", unit]
        self.env = {**os.environ, "PYTHONPATH": project}
        self.supervisor = 0
        self.started = 0.0
        self.pause = _PAUSES[0]
        self.stopping = False

    def run(self) -> None:
        """Until SIGTERM and the supervisor's end."""
        wanted = (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM)
        self.start_if_due()
        while True:
            received = signal.sigwaitinfo(wanted).si_signo
            if received == signal.SIGCHLD:
                self.collect()
            elif self.supervisor:
                os.kill(self.supervisor, received)
            self.stopping |= received == signal.SIGTERM
            if self.stopping and not self.supervisor:
                return
            self.start_if_due()

    def start_if_due(self) -> None:
        if self.supervisor or self.stopping or not os.path.exists(f"{self.unit}/spec.json"):
            return
        self.started = time.monotonic()
        # SIGHUP waits until the supervisor can receive it.
        self.supervisor = os.posix_spawn(
            self.argv[0], self.argv, self.env, setsid=True, setsigmask=[signal.SIGHUP], setsigdef=[signal.SIGPIPE]
        )

    def collect(self) -> None:
        """Collect every process that has ended, orphans too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.supervisor:
                self.supervisor = 0
                say(f"the supervisor ended ({how(status)})")
                if time.monotonic() - self.started > _STEADY:
                    self.pause = _PAUSES[0]
                if not self.stopping:
                    time.sleep(self.pause)
                self.pause = min(2 * self.pause, _PAUSES[1])


def how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit status {os.WEXITSTATUS(status)}"


def say(text: str) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f"{stamp} init: {text}", file=sys.stderr, flush=True)


def open_log(path: str) -> None:
    """Standard output and errors go to the log, standard input comes from nowhere."""
    if os.path.exists(path) and os.path.getsize(path) > _KEEP_LOG:
        os.rename(path, path + ".1")
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o640)
    null = os.open(os.devnull, os.O_RDONLY)
    for handle, number in ((null, 0), (log, 1), (log, 2)):
        os.dup2(handle, number)
    os.close(log)
    os.close(null)


def main() -> int:
    unit, project, log, ready, lock = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM))
    os.setsid()
    with open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write("nodewright-init")
    open_log(log)
    os.set_inheritable(int(lock), False)
    os.write(int(ready), b"ready\n")
    os.close(int(ready))
    say("the node is up")
    Init(unit, project).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
