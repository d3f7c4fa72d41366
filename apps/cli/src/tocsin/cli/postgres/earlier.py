"""The server that an owner who was killed has left behind in a data directory."""

import shutil
from pathlib import Path

import psutil

from tocsin.cli.postgres import processes
from tocsin.cli.postgres.errors import ForeignServerError
from tocsin.common.clock import Clock

SOCKET_FOLDER_PREFIX = "tocsin-pg-"
"""Only our launcher gives a server such a socket folder."""


def left_behind(cluster: Path) -> psutil.Process | None:
    """The living server of an earlier owner; None where there is none. For whoever holds the directory's lock.

    Raises:
        ForeignServerError: another hand started the server that runs on these data.
    """
    written = processes.postmaster_file(cluster)
    found = [process for process in processes.of_cluster(cluster) if written and str(process.pid) == written[0]]
    if not found:
        return None
    [postmaster] = found
    try:
        arguments = postmaster.cmdline()
    except psutil.NoSuchProcess:  # it ends at this moment
        return None
    if not any(SOCKET_FOLDER_PREFIX in argument for argument in arguments):
        raise ForeignServerError(
            f"the data directory {cluster} is in use by a PostgreSQL that tocsin did not start "
            f"(pid {postmaster.pid}): stop that server first"
        )
    return postmaster


def end_earlier_server(cluster: Path, clock: Clock, *, grace: float) -> None:
    """Ends what an owner that was killed left behind. For whoever holds the directory's lock.

    Raises:
        ForeignServerError: another hand started the server that runs on these data; it is left alone.
    """
    written = processes.postmaster_file(cluster)
    if (postmaster := left_behind(cluster)) is not None:
        processes.shut_down(postmaster, clock, grace=grace)
    processes.end_leftovers(cluster, clock)
    if len(written) > 4 and Path(written[4]).name.startswith(SOCKET_FOLDER_PREFIX):
        shutil.rmtree(written[4], ignore_errors=True)
    # No process of this server lives. PostgreSQL finds that out itself, but not where its pid has since
    # gone to another process of the same account.
    (cluster / "postmaster.pid").unlink(missing_ok=True)
