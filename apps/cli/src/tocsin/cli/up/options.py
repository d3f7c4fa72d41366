"""What `up` is asked for, and what it finds out before it starts anything."""

import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from tocsin.common.errors import TocsinError

HOST = "127.0.0.1"
SETTING = "TOCSIN_DATABASE_URL"
"""Names a database to use in the place of one of our own."""

_MOST_EXECUTORS = 4


class UpError(TocsinError):
    """`up` cannot start; the text is one sentence that says why and what to do."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    data_dir: Path
    port: int
    dashboard_port: int
    executors: int
    demo: bool
    database_url: SecretStr | None = None
    """None: `up` runs a PostgreSQL of its own."""
    own_redis: bool = False
    """Hints are asked for, and no Redis was named for them."""

    @property
    def logs(self) -> Path:
        return self.data_dir / "logs"

    @property
    def ray_token(self) -> Path:
        """The token that Ray's dashboard asks for; mode 0600."""
        return self.data_dir / "ray-token"

    @property
    def demo_key(self) -> Path:
        """The API key of the demo's tenant; mode 0600."""
        return self.data_dir / "demo-key"

    @property
    def demo_port(self) -> Path:
        """The port of the demo's endpoint, kept because its tasks name it."""
        return self.data_dir / "demo-port"


def usual_executors() -> int:
    """One executor on one or two cores, else one for every two, four at most."""
    return max(1, min(_MOST_EXECUTORS, (os.cpu_count() or 1) // 2))


def require_free_ports(options: UpOptions) -> None:
    """Raises:
    UpError: the API's or the dashboard's port is taken, or they are the same.
    """
    if options.port == options.dashboard_port:
        raise UpError(f"the API and Ray's dashboard cannot both have port {options.port}")
    for port, use, option in (
        (options.port, "the API", "--port"),
        (options.dashboard_port, "Ray's dashboard", "--dashboard-port"),
    ):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                reason = "is taken by another program" if error.errno == errno.EADDRINUSE else str(error.strerror)
                raise UpError(
                    f"port {port} on {HOST}, meant for {use}, {reason}: choose another with {option}"
                ) from error
