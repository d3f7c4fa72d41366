"""The Executor as a Ray actor: an executor node, composed here of engine and executor, for Ray to place and restart."""

import asyncio
import logging
import os

import ray

from tocsin.cli.node import ExecutorNode
from tocsin.common.settings import Settings
from tocsin.common.telemetry.ray_meter import RayMeter

log = logging.getLogger("tocsin.actors")

_GCS_LOST_SECONDS = 45.0
_LOOK_EVERY = 5.0
_GRACE = 30.0


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)
class ExecutorActor:
    """Starts in its constructor, so that a restart by Ray is a start like any other.

    It drains by itself when a newer Supervisor has begun a generation, and when the GCS has been away for 45 s:
    a new head would know nothing of it (rule 12).
    """

    def __init__(self, cell: str, generation: int, name: str) -> None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
        self._name = name
        self._meter = RayMeter()
        self._node = ExecutorNode(Settings(), cell, generation, self._meter)
        loop = asyncio.get_running_loop()
        self._running = loop.create_task(self._node.run())
        self._watching = loop.create_task(self._watch())

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
        log.info("%s drained%s", self._name, "" if finished else "; some calls had not ended")
        ray.actor.exit_actor()  # type: ignore[no-untyped-call]

    async def _watch(self) -> None:
        gcs_seen = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            self._meter.flush()
            if await self._node.outdated():
                log.warning("%s: a newer generation has begun; draining", self._name)
                break
            if await asyncio.to_thread(_gcs_answers):
                gcs_seen = asyncio.get_running_loop().time()
            elif asyncio.get_running_loop().time() - gcs_seen > _GCS_LOST_SECONDS:
                log.warning("%s: the GCS has been away for %d s; draining", self._name, _GCS_LOST_SECONDS)
                break
        await self._node.drain(_GRACE)
        os._exit(0)  # without a GCS, Ray's own way out waits for it


def _gcs_answers() -> bool:
    try:
        return bool(ray.nodes())  # type: ignore[no-untyped-call]
    except Exception:
        return False
