"""A Ray of its own, in which many ask for the same named actors at once. Prints what came of it, as JSON.

As `named_actors.py FOLDER`; it starts itself again as `named_actors.py ask ADDRESS`, once for each process that asks.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.exceptions import RayActorError

from tocsin.engine.actors import NAMESPACE, SUPERVISOR, RayCells, start_supervisor

PROCESSES = 4
EACH = 2
LIMIT = 30.0
CELLS = ("tenant-a/b c", "A", "a")


@ray.remote(num_cpus=0)
class Executor:
    """Stands for an executor: it has a name, and answers."""

    def __init__(self, cell: str, generation: int, name: str) -> None:
        self._name = name

    async def name(self) -> str:
        return self._name


@ray.remote(num_cpus=0)
class FailsOnce:
    """Its first constructor fails, as where something that it needs is away."""

    def __init__(self, cell: str, generation: int, name: str) -> None:
        marker = Path(os.environ["MARKER"])
        if not marker.exists():
            marker.touch()
            raise RuntimeError("away")

    async def name(self) -> str:
        return "alive"


@ray.remote(num_cpus=0, max_restarts=-1)
class Alive:
    """Has a process."""

    def __init__(self, cell: str, generation: int, name: str) -> None:
        self._pid = os.getpid()

    async def pid(self) -> int:
        return self._pid


def started_and_asked(start: Callable[[], Any], method: str = "status") -> str:
    """The actor's id once it has answered, or which error came instead."""
    try:
        handle = start()
        ray.get(getattr(handle, method).remote(), timeout=LIMIT)
    except Exception as error:  # which one is what the test looks at
        return type(error).__name__
    return str(handle._actor_id.hex())


def at_once(start: Callable[[], Any], count: int) -> list[str]:
    gate = threading.Barrier(count)

    def one(_number: int) -> str:
        gate.wait()
        return started_and_asked(start)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def supervisor() -> Any:
    return start_supervisor(Executor)


def from_processes(address: str) -> list[str]:
    command = [sys.executable, __file__, "ask", address]
    asking = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    for process in asking:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in asking:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [found for process in asking for found in json.loads(process.communicate(timeout=LIMIT)[0])]


def ask(address: str) -> None:
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(at_once(supervisor, EACH)), flush=True)


def after_a_kill() -> dict[str, Any]:
    old = ray.get_actor(SUPERVISOR, NAMESPACE)
    ray.kill(old)
    found = at_once(supervisor, 8)
    while (new := started_and_asked(supervisor)) == RayActorError.__name__:
        continue  # the dead one's name is not yet free
    return {"old": old._actor_id.hex(), "found": found, "new": new}


def without_get_if_exists() -> list[str]:
    """The broken twin: looks, and then makes what it has not found."""
    looked = threading.Barrier(8)

    def start() -> Any:
        try:
            return ray.get_actor("naive", NAMESPACE)
        except ValueError:
            looked.wait()
            return Executor.options(name="naive", namespace=NAMESPACE, lifetime="detached").remote("", 0, "naive")  # type: ignore[attr-defined]

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda _number: started_and_asked(start, "name"), range(8)))


async def cells() -> dict[str, Any]:
    started = {cell: await asyncio.gather(*(RayCells(Executor).start(cell, 1) for _ in range(8))) for cell in CELLS}
    names = sorted({name for of_cell in started.values() for name in of_cell})
    answers: list[Any] = [ray.get(ray.get_actor(name, NAMESPACE).name.remote(), timeout=LIMIT) for name in names]
    return {"started": started, "answers": answers, "running": await RayCells(Executor).running()}


async def constructor_that_fails() -> dict[str, Any]:
    async def started() -> tuple[str, str]:
        name = await RayCells(FailsOnce).start("bad", 1)
        return name, started_and_asked(lambda: ray.get_actor(name, NAMESPACE), "name")

    return {"started": [await started(), await started()]}


async def silence() -> dict[str, Any]:
    """Of three executors one is frozen, as one by a debugger or a hypervisor: none but the silent one is ended. While
    another does not answer either, and one alone lacks its lease, nobody is."""
    cells = RayCells(Alive)
    names = [await cells.start(cell, 1) for cell in ("frozen", "well", "well")]

    def pid_of(name: str) -> int:
        get: Any = ray.get
        return int(get(ray.get_actor(name, NAMESPACE).pid.remote(), timeout=LIMIT))

    pids = {name: pid_of(name) for name in names}
    frozen = psutil.Process(pids[names[0]])
    frozen.send_signal(signal.SIGSTOP)
    unreachable = psutil.Process(pids[names[1]])
    unreachable.send_signal(signal.SIGSTOP)
    spared = await cells.end_silent(names, 1)
    unreachable.send_signal(signal.SIGCONT)
    ended = await cells.end_silent([*names, "executor/gone/1-0"], 3)
    running = await cells.running()
    again = await cells.start("frozen", 1)
    gone, _ = psutil.wait_procs([frozen], timeout=LIMIT)
    return {
        "names": names,
        "spared": spared,
        "ended": ended,
        "left": running.get("well"),
        "same": [pid_of(name) == pids[name] for name in names[1:]],
        "again": again,
        "other": pid_of(again) != pids[names[0]],
        "process gone": bool(gone),
    }


def main(folder: str) -> None:
    context: Any = ray.init(
        address="local",
        namespace=NAMESPACE,
        num_cpus=0,
        num_gpus=0,
        object_store_memory=80 * 1024**2,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        _temp_dir=folder,
    )
    result = {
        "processes": from_processes(context.address_info["gcs_address"]),
        "kill": after_a_kill(),
        "naive": without_get_if_exists(),
        "cells": asyncio.run(cells()),
        "constructor": asyncio.run(constructor_that_fails()),
        "silence": asyncio.run(silence()),
        "named": sorted(ray.util.list_named_actors()),
    }
    print(json.dumps(result), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        ask(sys.argv[2])
    else:
        main(sys.argv[1])
