"""Ends what `up` leaves behind when it is killed: its children and theirs, the database server, its folder.

A process of its own, for nobody can clean up after his own SIGKILL. When its standard input ends, `up` is gone.
After an orderly stop it finds nothing to do.
"""

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

from tocsin.cli.postgres import PostgresError
from tocsin.cli.postgres import processes as servers
from tocsin.cli.postgres.cluster import Layout, take_lock
from tocsin.cli.up import processes
from tocsin.common.clock import SystemClock

_CHILDREN_SECONDS = 6.0
_SERVER_SECONDS = 20.0


def main(marker: str, cluster: Path | None, folder: Path) -> None:
    """`marker`: the id of the `up`; `cluster`: the data of the database server that it runs, if it runs one; `folder`:
    its temporary one."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.write(1, b'{"event": "ready"}\n')
    while os.read(0, 4_096):
        pass
    children = processes.started_by(f"{marker}.")
    processes.wait_gone(children, _CHILDREN_SECONDS)  # they see their own input end, and drain
    processes.end_all(f"{marker}.", [child.pid for child in children])
    if cluster is not None:
        _end_server(cluster)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _end_server(cluster: Path) -> None:
    try:
        with contextlib.suppress(OSError):  # a full disk, or a data directory that is gone
            os.close(take_lock(Layout(cluster.parent)))
    except PostgresError:
        return  # another `up` has the data by now: it has ended our server itself, and runs its own
    clock = SystemClock()
    written = servers.postmaster_file(cluster)
    for server in servers.of_cluster(cluster):
        if written and str(server.pid) == written[0]:
            servers.shut_down(server, clock, grace=_SERVER_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if sys.argv[2] else None, Path(sys.argv[3]))
