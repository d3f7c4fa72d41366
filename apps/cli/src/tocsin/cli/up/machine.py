"""Everything that runs on this machine for one `up`: started in order, kept alive, stopped in order."""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tocsin.cli.database import open_store
from tocsin.cli.files import read_text, write_private
from tocsin.cli.postgres import EmbeddedPostgres, PostgresError
from tocsin.cli.redis_server import url_of
from tocsin.cli.up import processes
from tocsin.cli.up.child import Child, ChildError, Message
from tocsin.cli.up.given_postgres import GivenPostgres
from tocsin.cli.up.options import HOST, UpError, UpOptions
from tocsin.cli.up.ray_keeper import ray_environment, without_ray
from tocsin.common.clock import Clock
from tocsin.common.service import together
from tocsin.common.store.postgres.migrate import migrate

log = logging.getLogger("tocsin.up")

CELL = "shared"
_TEMPORARY = "/tmp"  # noqa: S108 - a private folder in it; elsewhere paths can grow too long for sockets
_LOOK_SECONDS = 0.5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_SETTLED_SECONDS = 60.0
_OWNERS_SECONDS = 60.0
_API_GRACE, _RAY_GRACE, _ENDPOINT_GRACE, _REDIS_GRACE = 3.0, 7.0, 1.0, 2.0
_SERVER_GRACE = 2.0
_RAY_TRIES = 3

T = TypeVar("T")


class Machine:
    """`start`, then `keep` until it is cancelled, then `stop`; `stop` may come at any time."""

    def __init__(self, options: UpOptions, clock: Clock, egress_allow: str) -> None:
        self.options = options
        self._clock = clock
        self._egress_allow = egress_allow
        self._up_id = secrets.token_hex(8)
        self._folder = Path(tempfile.mkdtemp(prefix="tocsin-", dir=_TEMPORARY))
        self._one_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="postgres")
        self.postgres = self._database()
        self.dsn = ""
        self.dashboard = f"{HOST}:{options.dashboard_port}"
        self.endpoint_port = 0
        self.on_call: Callable[[Message], None] = lambda message: None
        self._keeping: asyncio.Task[None] | None = None
        self._guardian = self._child("guardian", "tocsin.cli.up.guardian")
        self.api = self._child("api", "tocsin.cli.up.api_process")
        self.ray = self._child("ray", "tocsin.cli.up.ray_keeper", self._heard_ray)
        self.redis = self._child("redis", "tocsin.cli.up.redis_process")
        self.endpoint = self._child("endpoint", "tocsin.cli.demo.endpoint", self._heard_endpoint)

    def _database(self) -> EmbeddedPostgres | GivenPostgres:
        options = self.options
        if options.database_url is not None:
            return GivenPostgres(options.database_url.get_secret_value(), options.data_dir, self._clock)
        return EmbeddedPostgres(options.data_dir, clock=self._clock, stop_grace=_SERVER_GRACE)

    def _child(self, name: str, module: str, heard: Callable[[Message], None] = lambda message: None) -> Child:
        return Child(name, module, self._up_id, self.options.logs, heard)

    def _heard_ray(self, message: Message) -> None:
        if message["event"] == "ready":
            self.dashboard = str(message["dashboard"])

    def _heard_endpoint(self, message: Message) -> None:
        if message["event"] == "ready":
            self.endpoint_port = int(message["port"])
        elif message["event"] == "call":
            self.on_call(message)

    @property
    def ray_folder(self) -> Path:
        """Ray's temporary folder of its present start; what actors log lies in it."""
        return self._folder / f"r{self.ray.starts}"

    async def start(self) -> None:
        """Starts everything, and returns once all of it serves.

        Raises:
            UpError, PostgresError, ChildError: something cannot; one sentence says what.
        """
        self.dsn = await self._in_thread(self.postgres.start)
        if isinstance(self.postgres, GivenPostgres):
            await self.postgres.require_free(demo=self.options.demo)
        self.options.logs.mkdir(mode=0o700, exist_ok=True)
        cluster = "" if isinstance(self.postgres, GivenPostgres) else str(self.options.data_dir / "cluster")
        await self._guardian.start(dict(os.environ), self._up_id, cluster, str(self._folder))
        await self._guardian.wait_ready()
        for name in await migrate(self.dsn):
            log.info("applied migration %s", name)
        async with open_store(self.dsn) as store:
            await store.tenants.set_executors(CELL, self.options.executors)
        if self.options.demo:
            await self._start_endpoint()
            await self.endpoint.wait_ready()
        if self.options.own_redis:
            await self._start_redis()
            await self.redis.wait_ready()
        await self._start_api()
        await self._start_ray()
        await self._take_up_work()

    async def _take_up_work(self) -> None:
        """Returns once all serves; what has come up, and ends before that, is started again."""
        await self.api.wait_ready()
        await self._wait_for_ray()
        self._keeping = asyncio.create_task(self._keep_all(), name="keep what runs")
        await self._wait_for_owners()

    async def _wait_for_ray(self) -> None:
        """Returns once Ray is up. A machine that is busy, or has not read Ray's files yet, may need some tries."""
        for tries_left in reversed(range(_RAY_TRIES)):
            try:
                await self.ray.wait_ready()
                return
            except ChildError as error:
                await self.ray.end_strays()
                if not tries_left:
                    raise UpError(f"{error}; see {self.options.logs / 'ray-last'}") from error
                log.warning("%s; starting it again", error)
            await asyncio.sleep(_FIRST_PAUSE)
            await self._start_ray()

    async def _wait_for_owners(self) -> None:
        """Returns once every shard has an owner: from then on, whatever is due is called. Ray may end meanwhile."""
        first = starts = self.ray.starts
        limit = self._clock.monotonic() + _OWNERS_SECONDS
        async with open_store(self.dsn) as store:
            while not all(owner for _, owner in await store.tenants.cell_shards(CELL)):
                if starts != self.ray.starts:
                    starts = self.ray.starts
                    limit = self._clock.monotonic() + _OWNERS_SECONDS
                if self._clock.monotonic() > limit or starts - first >= _RAY_TRIES:
                    raise UpError(f"no executor took up its work within {_OWNERS_SECONDS:g} s; see {self.ray_folder}")
                await asyncio.sleep(_LOOK_SECONDS / 2)

    async def keep(self) -> None:
        """Starts again whatever ends, as it does since the end of `start`. Never returns."""
        assert self._keeping is not None
        await self._keeping

    async def _keep_all(self) -> None:
        kept = [
            self._keep_child(self.api, self._start_api),
            self._keep_child(self.ray, self._start_ray),
            self._keep_postgres(),
        ]
        if self.options.own_redis:
            kept.append(self._keep_child(self.redis, self._start_redis))
        if self.options.demo:
            kept.append(self._keep_child(self.endpoint, self._start_endpoint))
        await together(*kept)

    async def stop(self) -> None:
        """Drains and ends everything; returns when nothing is left. What was never started is no error."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await asyncio.gather(self.api.stop(_API_GRACE), self.ray.stop(_RAY_GRACE))
        await asyncio.gather(self.endpoint.stop(_ENDPOINT_GRACE), self.redis.stop(_REDIS_GRACE))
        await self._in_thread(self.postgres.stop)
        self._save_ray_logs()
        shutil.rmtree(self._folder, ignore_errors=True)
        await self._guardian.let_go()
        self._one_thread.shutdown()

    def abandon(self) -> None:
        """For a second Ctrl-C: kills everything, waits for no call, and exits with 130."""
        processes.end_all(f"{self._up_id}.", gently=False)
        with contextlib.suppress(Exception):  # it may be stopping already, in its thread
            self.postgres.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(130)

    async def _start_child(self, child: Child, env: Mapping[str, str], *args: str) -> None:
        session = await child.start(env, *args)
        self._guardian.tell(f"{child.name} {session}")

    async def _start_api(self) -> None:
        environment = self._environment(TOCSIN_API_HOST=HOST, TOCSIN_API_PORT=str(self.options.port))
        await self._start_child(self.api, environment)

    async def _start_ray(self) -> None:
        self._save_ray_logs()
        shutil.rmtree(self.ray_folder, ignore_errors=True)
        environment = without_ray(self._environment(TMPDIR=str(self._folder))) | ray_environment(self._token())
        folder = self._folder / f"r{self.ray.starts + 1}"
        await self._start_child(self.ray, environment, str(folder), str(self.options.dashboard_port))

    @property
    def redis_folder(self) -> Path:
        return self._folder / "redis"

    async def _start_redis(self) -> None:
        self.redis_folder.mkdir(mode=0o700, exist_ok=True)
        await self._start_child(self.redis, dict(os.environ), str(self.redis_folder))

    async def _start_endpoint(self) -> None:
        kept = self.options.demo_port
        port = self.endpoint_port or int(read_text(kept) or 0)
        await self._start_child(self.endpoint, dict(os.environ), str(port))
        await self.endpoint.wait_ready()
        if not port or port != self.endpoint_port:
            write_private(kept, str(self.endpoint_port))

    def _environment(self, **more: str) -> dict[str, str]:
        """What a child of ours reads: secrets travel here, never as arguments."""
        allowed = [self._egress_allow] if self._egress_allow.strip() else []
        if self.endpoint_port:
            allowed.append(f"{HOST}/32:{self.endpoint_port}")
        redis = {"TOCSIN_REDIS_URL": url_of(self.redis_folder)} if self.options.own_redis else {}
        return {
            **os.environ,
            **redis,
            "TOCSIN_DATABASE_URL": self.dsn,
            "TOCSIN_EGRESS_ALLOW": ",".join(allowed),
            **more,
        }

    def _token(self) -> str:
        file = self.options.ray_token
        if not read_text(file):
            write_private(file, secrets.token_hex(32))
        return read_text(file)

    def _save_ray_logs(self) -> None:
        """Moves the logs of Ray's last start to where they outlive it."""
        found = self.ray_folder / "session_latest" / "logs"
        if found.is_dir():
            saved = self.options.logs / "ray-last"
            shutil.rmtree(saved, ignore_errors=True)
            with contextlib.suppress(OSError):
                shutil.move(found.resolve(), saved)

    async def _keep_child(self, child: Child, start: Callable[[], Awaitable[None]]) -> None:
        pause = _FIRST_PAUSE
        while True:
            since = self._clock.monotonic()
            code = await child.ended()
            if self._clock.monotonic() - since > _SETTLED_SECONDS:
                pause = _FIRST_PAUSE
            log.warning("%s has ended (exit code %d); starting it again", child.name, code)
            if count := await child.end_strays():
                log.info("ended %d processes that %s had left", count, child.name)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
            try:
                await start()
                await child.wait_ready()
            except (ChildError, OSError) as error:
                log.warning("%s", error)
            else:
                log.info("%s is back", child.name)

    async def _keep_postgres(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self.postgres.running:
                continue
            log.warning("PostgreSQL has ended; starting it again")
            try:
                dsn = await self._in_thread(self.postgres.start)
            except PostgresError as error:
                log.warning("%s", error)
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
                continue
            log.info("PostgreSQL is back")
            pause = _FIRST_PAUSE
            if dsn != self.dsn:  # its port was taken meanwhile
                self.dsn = dsn
                await asyncio.gather(self.api.stop(_API_GRACE), self.ray.stop(_RAY_GRACE))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Runs a call of PostgreSQL's launcher, one at a time, also when we are cancelled meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._one_thread, call)
