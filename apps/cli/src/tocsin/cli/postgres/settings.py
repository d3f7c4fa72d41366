"""The server's settings: those of a scheduler's database on one machine, each with its reason."""

from collections.abc import Mapping

import psutil

_GIB = 1024**3


def production_settings() -> dict[str, str]:
    """Settings for `tocsin up`. They hold on every supported major version (15 to 18)."""
    buffers = min(psutil.virtual_memory().total // 4, _GIB)
    return {
        # A commit that was answered is on disk: no run is lost to a power cut.
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        # The hot tables are small: a quarter of memory, but no more than the figures were measured with.
        "shared_buffers": f"{buffers // 1024**2}MB",
        # A begin costs 13 ms, and 54 ms just after a checkpoint, when whole pages go to the WAL.
        "max_wal_size": "4GB",
        "checkpoint_timeout": "15min",
        # Those whole pages go as they are: the one compression that every build has makes that begin take 400 ms.
        "wal_compression": "off",
        # A run's row is deleted twice within seconds; in the default minute a peak piles up dead ones.
        "autovacuum_naptime": "5s",
        # A few pools of ten: executors, APIs, commands, and a person with psql.
        "max_connections": "100",
        # No transaction spans a call; one that idles is a frozen client that holds row locks and xmin.
        "idle_in_transaction_session_timeout": "5s",
        # Every statement is short: compiling it would take longer than running it.
        "jit": "off",
        # The log and a session that says nothing are in UTC; initdb would take the machine's zone.
        "timezone": "UTC",
        "log_timezone": "UTC",
    }


def throwaway_settings() -> dict[str, str]:
    """Settings for a test's server: a power cut loses its data; a crash of its processes loses nothing."""
    return production_settings() | {
        "fsync": "off",
        "full_page_writes": "off",
        # Several servers may run at once on a small machine.
        "shared_buffers": "128MB",
        "max_wal_size": "1GB",
        # A worker in a template database holds up the next copy of it.
        "autovacuum_naptime": "1min",
    }


def command_line(settings: Mapping[str, str]) -> list[str]:
    """The settings as arguments of `postgres`, where they win over its files."""
    return [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
