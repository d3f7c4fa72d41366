"""Ends what `up` leaves behind when it is killed: its children and theirs, the database server, its folder.

A process of its own, for nobody can clean up after his own SIGKILL. On its standard input `up` says whom it has
started; when that ends, `up` is gone. After an orderly stop it finds nothing to do.
"""

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

import psutil

from tocsin.cli.postgres import PostgresError
from tocsin.cli.postgres import processes as servers
from tocsin.cli.postgres.cluster import Layout, take_lock
from tocsin.cli.postgres.earlier import left_behind
from tocsin.cli.up import processes
from tocsin.common.clock import Clock, SystemClock

_CHILDREN_SECONDS = 6.0
_SERVER_SECONDS = 20.0


def main(marker: str, cluster: Path | None, folder: Path) -> None:
    """`marker`: the id of the `up`; `cluster`: the data of the database server that it runs, if it runs one; `folder`:
    its temporary one."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.write(1, b'{"event": "ready"}\n')
    told = _sessions_told()
    children = processes.started_by(f"{marker}.", told)
    processes.wait_gone(children, _CHILDREN_SECONDS)  # they see their own input end, and drain
    processes.end_all(f"{marker}.", [*told, *(child.pid for child in children)])
    if cluster is not None:
        _end_server(cluster)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _sessions_told() -> list[int]:
    """Returns when `up` is gone: the session of each child's last start, a line `<name> <pid>` each.

    Nothing else may tell of them then: once Ray's raylet has died with its keeper, only those of its processes are
    left that hide the marker, and they take their time to see that they are orphans.
    """
    latest = {}
    for line in sys.stdin:
        name, pid = line.split()
        latest[name] = int(pid)
    return [*latest.values()]


def _end_server(cluster: Path) -> None:
    clock = SystemClock()
    if (server := _left_server(cluster, clock)) is not None:
        servers.shut_down(server, clock, grace=_SERVER_SECONDS)


def _left_server(cluster: Path, clock: Clock) -> psutil.Process | None:
    """The server to end, found while nobody can start another; what starts from then on is not touched."""
    lock = None
    try:
        with contextlib.suppress(OSError):  # a full disk, or a data directory that is gone
            lock = take_lock(Layout(cluster.parent), clock, wait=0.0)
        return left_behind(cluster)
    except PostgresError:
        return None  # another `up` has the data by now: at its start it has ended our server itself
    finally:
        if lock is not None:
            os.close(lock)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if sys.argv[2] else None, Path(sys.argv[3]))
