"""One API process: a socket, the application on it, and its store."""

import asyncio
import contextlib
import errno
import logging
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web  # noqa: TID251 - this app serves HTTP

from tocsin.api.app import create_app, finish
from tocsin.api.problems import Problem
from tocsin.api.store import ApiStore
from tocsin.common.clock import Clock, SystemClock
from tocsin.common.errors import StoreUnavailableError, TocsinError
from tocsin.common.ids import Ids

KEEP_ALIVE_SECONDS: Final = 75.0
REOPEN_SECONDS: Final = 0.5
FIRST_SECONDS: Final = 1.0
"""How long a start waits for the database, so that with one that is up no request meets a closed store."""

_BACKLOG: Final = 1_024

log = logging.getLogger(__name__)


class ListenError(TocsinError):
    """The address cannot be listened on; the text says why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What an API process is told.

    `port` 0: a free one, which `ready` is told. `reuse_port`: several processes listen on one port, and the
    kernel spreads connections over them (SO_REUSEPORT). `grace`: seconds that requests in flight get at a
    stop. `pool`: connections to the database.
    """

    dsn: str
    host: str = "127.0.0.1"
    port: int = 8080
    reuse_port: bool = False
    pool: int = 8
    grace: float = 5.0


async def run(
    settings: Settings,
    *,
    ready: Callable[[int], None],
    stop: asyncio.Event,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> None:
    """Serves until `stop` is set, then lets requests in flight end.

    `ready` is told the port as soon as connections are taken. That may be before the database answers: then
    requests get 503 and `/readyz` says so, and all goes on when it does.

    Raises:
        ListenError: the port is taken, or the address is not this machine's.
    """
    clock = clock or SystemClock()
    ids = Ids(clock, rng or random.SystemRandom())
    listening = listen(settings.host, settings.port, reuse_port=settings.reuse_port)
    store = ApiStore(settings.dsn, size=settings.pool)
    runner = web.AppRunner(create_app(store, clock, ids), shutdown_timeout=settings.grace)
    await runner.setup()
    opening = asyncio.create_task(_open(store), name="open-store")
    try:
        await asyncio.wait([opening], timeout=FIRST_SECONDS)
        server = await asyncio.get_running_loop().create_server(
            lambda: _protocol(runner, ids), sock=listening, backlog=_BACKLOG
        )
        ready(listening.getsockname()[1])
        await stop.wait()
        server.close()
    finally:
        listening.close()
        await runner.cleanup()
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await opening
        await store.close()


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """A socket that listens soon.

    Raises:
        ListenError: the port is taken, or the address is not this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"{host} is no address to listen on: {error.strerror}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ListenError(f"port {port} on {host} is taken by another program; choose another port") from error
        raise ListenError(f"cannot listen on port {port} of {host}: {error.strerror}") from error
    listening.setblocking(False)
    return listening


class _Protocol(web.RequestHandler):
    """aiohttp's, but what is not HTTP gets a problem document too, and no line in the log."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Ids, server: web.Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            access_log=None,  # type: ignore[arg-type]
            auto_decompress=False,
        )
        self._ids = ids

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            log.error("request_failed status=%d", status, exc_info=exc)
            problem = Problem(status, "internal", "an error on our side")
        else:
            problem = Problem(
                status, "bad-request", "the request is not HTTP as RFC 9112 has it, or its head is too long"
            )
        request_id = str(self._ids.new())
        response = problem.response(request_id)
        finish(response, request_id)
        response.force_close()
        return response


def _protocol(runner: web.AppRunner, ids: Ids) -> _Protocol:
    assert runner.server is not None
    return _Protocol(ids, runner.server)


async def _open(store: ApiStore) -> None:
    """Opens the store, however long the database takes; says so once."""
    waiting = False
    while True:
        try:
            await store.open()
        except StoreUnavailableError as error:
            if not waiting:
                log.warning("the database does not answer; requests get 503 until it does: %s", error)
            waiting = True
            await asyncio.sleep(REOPEN_SECONDS)
        else:
            if waiting:
                log.info("the database answers")
            return
