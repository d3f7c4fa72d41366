"""The Executor as a Ray actor: an executor node, composed here of engine and executor, for Ray to place and restart."""

import asyncio
import logging
import os

import ray

from tocsin.cli.node import ExecutorNode
from tocsin.cli.watch import Watch, Way
from tocsin.common.service import end_process_on_failure
from tocsin.common.settings import Settings
from tocsin.common.telemetry.ray_meter import RayMeter

log = logging.getLogger("tocsin.actors")

_LOOK_EVERY = 5.0
_GRACE = 30.0
_CLOSE_SECONDS = 2.0
_ANSWER_SECONDS = 5.0


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)
class ExecutorActor:
    """Starts in its constructor, so that a restart by Ray is a start like any other.

    It drains by itself when a newer Supervisor has begun a generation, and when the GCS has been away for 45 s:
    a new head would know nothing of it (rule 12). A fault that ends its work ends its process: Ray restarts it.
    """

    def __init__(self, cell: str, generation: int, name: str) -> None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
        self._name = name
        self._meter = RayMeter()
        self._node = ExecutorNode(Settings(), cell, generation, self._meter)
        loop = asyncio.get_running_loop()
        self._running = loop.create_task(self._node.run(), name=f"{name}: node")
        self._watching = loop.create_task(self._watch(), name=f"{name}: watch")
        for task in (self._running, self._watching):
            task.add_done_callback(end_process_on_failure)

    def __repr__(self) -> str:
        return f"Executor {self._name.partition('/')[2]}"

    async def status(self) -> str:
        """One line for a person."""
        return str(self._node.status)

    async def pid(self) -> int:
        return os.getpid()

    async def drain(self, grace: float) -> None:
        """Finishes what is in flight within `grace` seconds and ends this actor for good."""
        finished = await self._node.drain(grace)
        await asyncio.wait({self._running}, timeout=_CLOSE_SECONDS)
        self._meter.flush()
        log.info("%s drained%s", self._name, "" if finished else "; some calls had not ended")
        ray.actor.exit_actor()  # type: ignore[no-untyped-call]

    async def _watch(self) -> None:
        watch = Watch(asyncio.get_running_loop().time())
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            self._meter.flush()
            if await self._look(watch) is not Way.STAY:
                log.warning("%s: a newer generation has begun, or the GCS is lost; draining", self._name)
                await self._node.drain(_GRACE)
                self._end(await self._look(watch))  # the GCS may have come or gone meanwhile

    async def _look(self, watch: Watch) -> Way:
        outdated = await self._node.outdated()
        gcs_answers = await _gcs_answers()
        return watch.look(asyncio.get_running_loop().time(), outdated=outdated, gcs_answers=gcs_answers)

    def _end(self, way: Way) -> None:
        if way is Way.LEAVE:
            # only a method called through Ray can end its actor for good
            ray.get_runtime_context().current_actor.drain.remote(_GRACE)
        else:
            os._exit(0)


async def _gcs_answers() -> bool:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            return bool(await asyncio.to_thread(ray.nodes))
    except Exception:
        return False
