"""`tocsin up` as it is, but for one thing: what it starts is told a proxy's port instead of PostgreSQL's own.

Given a `TOCSIN_DATABASE_URL` of the proxy, `up` would leave the server alone. Here it runs its own and starts it again
when it ends, as faults want: while the file `CHAOS_HOLD` is there, that start waits, and the server stays away.
"""

import os
import sys
import threading
from pathlib import Path
from unittest.mock import patch
from urllib.parse import urlsplit

from tocsin.cli.main import app
from tocsin.cli.postgres import EmbeddedPostgres
from tocsin.cli.up import machine

PORT = "CHAOS_PROXY_PORT"
HOLD = "CHAOS_HOLD"
_LOOK_SECONDS = 0.1


def at_port(dsn: str, port: int) -> str:
    """The same database by another port of this machine."""
    parts = urlsplit(dsn)
    return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}").geturl()


class PostgresBehindProxy(EmbeddedPostgres):
    def start(self) -> str:
        hold, never = Path(os.environ[HOLD]), threading.Event()
        while hold.exists():
            never.wait(_LOOK_SECONDS)
        return at_port(super().start(), int(os.environ[PORT]))


if __name__ == "__main__":
    with patch.object(machine, "EmbeddedPostgres", PostgresBehindProxy):
        app(["up", *sys.argv[1:]])
