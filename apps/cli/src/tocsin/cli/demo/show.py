"""The demo of `up --demo`: made ready over the API, then watched."""

import asyncio
import itertools
import logging
import shlex
from typing import Any

from tocsin.cli.database import open_store
from tocsin.cli.demo.client import DemoClient
from tocsin.cli.demo.figures import Figures, known_task
from tocsin.cli.demo.tasks import demo_tasks
from tocsin.cli.demo.tenant import demo_key
from tocsin.cli.up.child import Message
from tocsin.cli.up.machine import Machine
from tocsin.cli.up.screen import Screen
from tocsin.common.clock import SystemClock
from tocsin.common.errors import TocsinError

log = logging.getLogger("tocsin.demo")

_ASK_EVERY = 0.1
_SUMMARY_EVERY = 10.0
_RUNS = 6


class Demo:
    def __init__(self, machine: Machine, screen: Screen) -> None:
        self._machine = machine
        self._screen = screen
        self._clock = SystemClock()
        self._key = ""
        self._documents: list[dict[str, Any]] = []

    @property
    def _base(self) -> str:
        return f"http://127.0.0.1:{self._machine.options.port}"

    async def prepare(self) -> None:
        """Makes the tenant, its key and its tasks where they are missing."""
        async with open_store(self._machine.dsn) as store:
            self._key = await demo_key(store, self._clock, self._machine.options.demo_key)
        now = self._clock.now()
        tasks = demo_tasks(now)
        async with DemoClient(self._base, self._key) as client:
            self._documents = await client.ensure(tasks, f"http://127.0.0.1:{self._machine.endpoint_port}")
        prompt = {task.name: task.prompt for task in tasks}
        known = {task["id"]: known_task(task, prompt=prompt[task["name"]]) for task in self._documents}
        self._figures = Figures(known, now)
        self._screen.figures = self._figures
        self._machine.on_call = self._called

    def curl(self) -> list[str]:
        """Lines to try in another shell."""
        curl = 'curl -s -H "Authorization: Bearer $KEY"'
        task = f"{self._base}/v1/tasks/{self._documents[0]['id']}"
        return [
            "Try in another shell:",
            f"  KEY=$(cat {shlex.quote(str(self._machine.options.demo_key))})",
            f"  {curl} {self._base}/v1/tasks",
            f"  {curl} {task}/runs",
            f"  {curl} -X POST {task}/run-now",
            f"  {curl} -X POST {task}/pause",
        ]

    async def watch(self) -> None:
        """Asks the API for the runs of one task after the other. Never returns."""
        asked_summary = self._clock.monotonic()
        async with DemoClient(self._base, self._key) as client:
            for document in itertools.cycle(self._documents):
                await asyncio.sleep(_ASK_EVERY)
                try:
                    runs = await client.runs(document["id"], _RUNS)
                except (TocsinError, OSError, TimeoutError) as error:
                    log.debug("the API was asked in vain: %s", error)
                    continue
                for line in self._figures.settled(document["id"], runs):
                    self._screen.line(line)
                if self._clock.monotonic() - asked_summary >= _SUMMARY_EVERY:
                    asked_summary = self._clock.monotonic()
                    self._screen.summary()

    def _called(self, message: Message) -> None:
        self._figures.arrived(message["run"], message["task"], message["attempt"], message["slot"], message["arrived"])
