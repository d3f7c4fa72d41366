"""The Supervisor as a Ray actor, and its executors as named, detached actors. All of the engine's Ray is here.

Runs never travel through Ray: it places processes and restarts them, and the database says who does what.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence
from typing import Any

import ray
from ray.actor import ActorHandle

from tocsin.common.clock import SystemClock
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.ids import Ids
from tocsin.common.service import Service, end_process_on_failure
from tocsin.common.settings import Settings
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.tasks import Tasks
from tocsin.common.telemetry.ray_meter import RayMeter
from tocsin.common.time.zones import zone_data_version
from tocsin.engine.supervisor import Supervisor, SupervisorConfig
from tocsin.engine.zone_data import ZoneDataConfig, ZoneDataUpgrade

log = logging.getLogger("tocsin.engine.actors")

NAMESPACE = "tocsin"
SUPERVISOR = "supervisor"
_PREFIX = "executor"
_EVERY = 1.0
_DRAIN_GRACE = 30.0
_ANSWER_SECONDS = 5.0


class RayCells:
    """Executors as actors named `executor/<cell>/<generation>-<number>`, by which they are found again."""

    def __init__(self, executor_class: Any) -> None:
        self._executor_class = executor_class
        self._draining: set[str] = set()

    async def running(self) -> dict[str, list[str]]:
        names = await asyncio.to_thread(ray.util.list_named_actors)
        self._draining &= set(names)
        found: dict[str, list[str]] = {}
        for name in sorted(names):
            prefix, _, rest = name.partition("/")
            if prefix == _PREFIX and name not in self._draining:
                found.setdefault(rest.rpartition("/")[0], []).append(name)
        return found

    async def start(self, cell: str, generation: int) -> str:
        taken = set(await asyncio.to_thread(ray.util.list_named_actors))
        number = next(n for n in range(len(taken) + 1) if f"{_PREFIX}/{cell}/{generation}-{n}" not in taken)
        name = f"{_PREFIX}/{cell}/{generation}-{number}"
        await asyncio.to_thread(self._create, name, cell, generation)
        return name

    def _create(self, name: str, cell: str, generation: int) -> None:
        self._executor_class.options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_task_retries=0,
            num_cpus=0,
        ).remote(cell, generation, name)

    async def drain(self, names: Sequence[str]) -> None:
        for name in names:
            self._draining.add(name)
            try:
                actor: ActorHandle[Any] = await asyncio.to_thread(ray.get_actor, name, NAMESPACE)
            except ValueError:
                continue
            actor.drain.remote(_DRAIN_GRACE)

    async def end_silent(self, names: Sequence[str], most: int) -> list[str]:
        return await asyncio.to_thread(_end_silent, names, most)


def _end_silent(names: Sequence[str], most: int) -> list[str]:
    asked: dict[Any, str] = {}
    for name in names:
        with contextlib.suppress(ValueError):  # gone by now
            asked[ray.get_actor(name, NAMESPACE).__ray_ready__.remote()] = name
    # an actor that is dead, or on its way to be restarted, answers with an error
    _, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_SECONDS) if asked else ([], [])
    if len(silent) > most:
        log.warning("%d executors do not answer, and %d lack a live lease; left alone", len(silent), most)
        return []
    ended = []
    for answer in silent:
        with contextlib.suppress(ValueError):
            ray.kill(ray.get_actor(asked[answer], NAMESPACE), no_restart=True)
            ended.append(asked[answer])
    return ended


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)
class SupervisorActor:
    """Rebuilt from the database in its constructor. Executors of this Ray cluster keep their generation when the
    Supervisor alone is restarted; a new cluster knows no executor, and begins a new one (rule 12)."""

    def __init__(self, executor_class: Any) -> None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
        self._settings = Settings()
        self._cells = RayCells(executor_class)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=SUPERVISOR)
        self._task.add_done_callback(end_process_on_failure)
        self._counts: dict[str, int] = {}

    def __repr__(self) -> str:
        return "Supervisor"

    async def _run(self) -> None:
        store = PostgresStore(self._settings.database_url.get_secret_value(), name="tocsin supervisor", size=2)
        meter, clock = RayMeter(), SystemClock()
        # nobody is woken: owners find replanted rows by their sweep, long before these are due
        tasks = Tasks(store.tasks, Ids(clock, random.SystemRandom()), lambda _tenant, _priority: None)
        supervisor = Supervisor(
            store,
            self._cells,
            clock,
            meter,
            ZoneDataUpgrade(store.next_rows, tasks, ZoneDataConfig(zone_data_version())),
            SupervisorConfig(self._settings.retention_days, self._settings.partition_days_ahead),
        )
        await self._open(store, supervisor)

        async def run_once() -> dict[str, int]:
            self._counts = await supervisor.run_once()
            meter.flush()
            return self._counts

        await Service("supervisor", run_once, _EVERY).run()

    async def _open(self, store: PostgresStore, supervisor: Supervisor) -> None:
        while True:
            try:
                await store.open()
                if await self._cells.running():
                    supervisor.generation = await store.tenants.generation()
                else:
                    await supervisor.begin_generation()
                return
            except StoreUnavailableError as error:
                log.warning("the database cannot be reached (%s); trying again", error)
                await store.close()
                await asyncio.sleep(1.0)

    async def status(self) -> dict[str, int]:
        """The counts of the last round."""
        return self._counts


def start_supervisor(executor_class: Any) -> "ActorHandle[SupervisorActor]":
    """The one Supervisor of this cluster, started if it is not there."""
    return SupervisorActor.options(  # type: ignore[attr-defined,no-any-return]
        name=SUPERVISOR, namespace=NAMESPACE, lifetime="detached", get_if_exists=True
    ).remote(executor_class)
