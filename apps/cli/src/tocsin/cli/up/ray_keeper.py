"""Ray as a child of `up`: a head node, the Supervisor, and a watch over raylet and GCS.

Nothing restarts those two on one machine, and actors live on for a minute without them (rule 12). So this
process ends as soon as one is gone, also while Ray starts; `up` then ends what is left of Ray and starts it again.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tocsin.cli.logs import configure_logging
from tocsin.cli.up.lifeline import stop_signals, tell_parent

log = logging.getLogger("tocsin.ray")

DRAIN_SECONDS = 4.0
_ENDED_SECONDS = 1.0
_LOOK_SECONDS = 0.5
_OBJECT_STORE = 80 * 1024**2  # bytes; Ray takes no less than 75 MiB, and runs never travel through it
_VITAL = ("raylet", "gcs_server")


def ray_environment(token: str) -> dict[str, str]:
    """What Ray reads when it is imported, and hands on to its workers."""
    return {
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # workers import from where we do, instead of from a copy
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # listen on 127.0.0.1 only
        "RAY_worker_niceness": "0",  # else workers start at nice 15 and miss heartbeats
        "RAY_prestart_worker_first_driver": "0",
        "RAY_enable_worker_prestart": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
    }


def without_ray(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what would lead us to another Ray."""
    return {name: value for name, value in environment.items() if name not in ("RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH")}


async def main(folder: Path, dashboard_port: int) -> None:
    """Ends the process, not its children. `folder`: Ray's temporary one; short, because of the sockets in it."""
    import ray

    from tocsin.cli.actors import ExecutorActor
    from tocsin.engine.actors import NAMESPACE, start_supervisor

    watch = VitalWatch()
    watch.start()
    context: Any = ray.init(
        address="local",
        namespace=NAMESPACE,
        num_cpus=0,  # actors ask for none; without any, no worker is started ahead
        num_gpus=0,
        object_store_memory=_OBJECT_STORE,
        include_dashboard=True,
        dashboard_host="127.0.0.1",
        dashboard_port=dashboard_port,
        log_to_driver=False,
        configure_logging=False,
        _temp_dir=str(folder),
    )
    watch.ready()
    stop = asyncio.Event()
    with stop_signals(stop, parent=True):  # only now: ray.init puts its own in their place
        supervisor = start_supervisor(ExecutorActor)
        tell_parent("ready", dashboard=context.dashboard_url, logs=str(folder / "session_latest" / "logs"))
        await stop.wait()
        watch.stop()
        await asyncio.to_thread(_drain, supervisor)
    os._exit(0)  # Ray's own way out takes seconds and saves nothing; `up` ends what is left


class VitalWatch:
    """Ends this process, with code 1, as soon as a raylet or GCS that it has started is gone.

    It begins before Ray does: a raylet whose agents do not report within 15 s dies (a constant of Ray 2.60, which no
    setting changes), and `ray.init` would wait on for it. It looks from a thread of its own: `ray.init` does not let
    the event loop run.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._seen: dict[str, psutil.Process] = {}
        self._nameless: set[int] = set()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watch raylet and GCS", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def ready(self) -> None:
        """From now on Ray serves.

        Raises:
            RuntimeError: Ray runs without a raylet or GCS of this process.
        """
        self.gone()
        if missing := sorted(set(_VITAL) - self._seen.keys()):
            raise RuntimeError(f"Ray has started without {' and '.join(missing)}")
        self._ready.set()

    def gone(self) -> list[str]:
        """Looks which of them have ended. One that ended before the first look is a zombie, and found as such.

        A zombie that does not tell its name, as on some systems, counts when it is found twice: Ray waits for the
        end of every helper of its own, and reaps it, but never for that of a raylet or GCS.
        """
        with self._lock:
            nameless = self._find() if len(self._seen) < len(_VITAL) else set()
            unknown = ["raylet or gcs_server"] if nameless & self._nameless else []
            self._nameless = nameless
            return sorted(name for name, process in self._seen.items() if not _lives(process)) + unknown

    def _find(self) -> set[int]:
        """Adds those that are new; returns the pids of zombies without a name."""
        nameless = set()
        for child in psutil.Process().children():
            try:
                name = child.name()
            except psutil.ZombieProcess:
                nameless.add(child.pid)
            except psutil.Error:  # it has ended, or is not ours to look into
                continue
            else:
                if name in _VITAL:
                    self._seen[name] = child
        return nameless

    def _watch(self) -> None:
        try:
            while not self._over.wait(_LOOK_SECONDS):
                if gone := " and ".join(self.gone()):
                    self._end_process(f"its {gone} ended")
        except Exception as error:
            log.exception("the watch over raylet and GCS has failed")
            self._end_process(f"the watch over it failed: {error}")

    def _end_process(self, reason: str) -> None:
        """Ray's own way out would wait for what is gone."""
        when = "" if self._ready.is_set() else " before it was ready"
        text = f"Ray {'is at an end' if self._ready.is_set() else 'cannot be started'}: {reason}{when}"
        try:
            log.error("%s", text)
            tell_parent("error", text=text)
        finally:
            os._exit(1)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _drain(supervisor: Any) -> None:
    """Ends the Supervisor, so that it starts nothing anew, then drains all executors at once (rule 13)."""
    import ray

    from tocsin.engine.actors import NAMESPACE, SUPERVISOR

    try:
        ray.kill(supervisor)
        names = [name for name in ray.util.list_named_actors() if name != SUPERVISOR]
        drains: list[Any] = [ray.get_actor(name, NAMESPACE).drain.remote(DRAIN_SECONDS) for name in names]
        if drains:
            _, late = ray.wait(drains, num_returns=len(drains), timeout=DRAIN_SECONDS + _ENDED_SECONDS)
            log.info("drained %d executors%s", len(drains) - len(late), f", {len(late)} are late" if late else "")
    except Exception:
        log.exception("the executors could not be drained; their leases will be judged")


if __name__ == "__main__":
    configure_logging()
    try:
        asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
    except Exception as error:
        log.exception("Ray cannot be started")
        tell_parent("error", text=f"Ray cannot be started: {error}")
        os._exit(1)  # Ray's own way out waits for what has not come up
