"""What the machine lets a process do."""

import resource

from tocsin.common.settings import Settings

_DEFAULT = 10_000
_RESERVED_FILES = 1_000
_FILES_BUT_CONNECTIONS = 500


def in_flight_limit(settings: Settings) -> int:
    """Calls in flight per process: the setting, or 10,000, or the open-file limit less 1,000, whichever is least."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = (settings.max_in_flight or _DEFAULT) + _RESERVED_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(settings.max_in_flight or _DEFAULT, soft - _RESERVED_FILES))


def connection_limit() -> int:
    """Connections to endpoints per process, idle ones included: more than calls in flight, and files are left over."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - _FILES_BUT_CONNECTIONS)
