"""The faults: what each is called, how long it lasts, and by when all must be on time again."""

import random
from dataclasses import dataclass

from property_tests.chaos import strikes_database as database
from property_tests.chaos import strikes_processes as processes
from property_tests.chaos import strikes_redis as redis
from property_tests.chaos.ledger import Struck
from property_tests.chaos.scene import NotStruckError, Scene
from property_tests.chaos.schedule import Plan, Planned
from property_tests.chaos.strikes_processes import Strike
from tocsin.cli.redis_server import program


@dataclass(frozen=True, slots=True)
class Fault:
    """`seconds`: how long it lasts, between which it is drawn; None for so many ttls. `database`: of the database
    alone, so no executor may be taken for dead, and nothing called twice. `recover`: how many seconds after its end
    nothing new is struck, and what was due must be on time again; `recovery`: a bound for that too, from its beginning.
    `worst`: for the worst start delay. `zombie`: a process is taken for dead and lives on."""

    name: str
    strike: Strike
    seconds: tuple[float, float] = (0.0, 0.0)
    recover: float = 15.0
    ttls: float = 0.0
    database: bool = False
    recovery: float | None = None
    worst: float | None = None
    zombie: bool = False
    holds_up: bool = True

    def plan(self, ttl: float) -> Plan:
        shortest, longest = (self.ttls * ttl,) * 2 if self.ttls else self.seconds
        return Plan(self.name, shortest, longest, self.recover)


async def strike(fault: Fault, planned: Planned, scene: Scene) -> Struck:
    """One fault of the schedule, from its beginning to its end; also where it failed, for what was done was done."""
    began = scene.now()
    missed = None
    try:
        detail = await fault.strike(scene, planned.seconds, random.Random(planned.number))
    except NotStruckError as error:
        detail = missed = str(error)
    except Exception as error:  # whatever it is: the run goes on, and is judged
        detail = missed = f"{type(error).__name__}: {error}"
    ended = scene.now()
    return Struck(fault.name, began, ended, detail, fault.database, fault.recover, missed, fault.zombie, fault.holds_up)


def catalogue() -> dict[str, Fault]:
    """All faults, by name; those of Redis where there is one to be had."""
    frozen, alone = processes.freeze_executor(dedicated=False), processes.freeze_executor(dedicated=True)
    faults = (
        Fault("kill-executor", processes.kill_executor, (5.0, 5.0), 10.0, recovery=5.0),
        Fault("kill-skewed", processes.kill_skewed, (5.0, 5.0), 10.0, recovery=5.0),
        Fault("freeze-executor", frozen, ttls=3.0, recovery=15.0, zombie=True),
        Fault("freeze-dedicated", alone, (70.0, 70.0), recovery=65.0, worst=65.0),
        Fault("partition-executor", processes.partition_executor, ttls=2.0, recovery=15.0, zombie=True),
        Fault("kill-supervisor", processes.kill_supervisor, (3.0, 3.0), 8.0, holds_up=False),
        Fault("kill-api", processes.kill_api, (3.0, 3.0), 8.0, holds_up=False),
        Fault("kill-raylet", processes.kill_ray("raylet"), (40.0, 40.0), 20.0, worst=45.0),
        Fault("kill-gcs", processes.kill_ray("gcs_server"), (40.0, 40.0), 20.0, worst=45.0),
        Fault("restart-postgres", database.restart_postgres, (3.0, 3.0), 12.0, database=True),
        Fault("stop-postgres", database.stop_postgres, (30.0, 30.0), 20.0, database=True, worst=32.0),
        Fault("cut-postgres", database.cut_database, (30.0, 30.0), 20.0, database=True, worst=32.0),
        Fault("cut-connections", database.cut_connections, (3.0, 3.0), 8.0, database=True),
        Fault("delay-postgres", database.delay_database, (8.0, 12.0), 8.0, database=True),
        Fault("black-hole", database.black_hole, (4.0, 15.0), database=True),
        Fault("drop-answers", database.drop_answers, (10.0, 10.0), 10.0, database=True),
        Fault("read-only", database.read_only, (4.0, 15.0), database=True),
    )
    hints = (
        Fault("kill-redis", redis.kill_redis, (3.0, 3.0), 8.0, holds_up=False),
        Fault("freeze-redis", redis.freeze_redis, (8.0, 12.0), 8.0, holds_up=False),
        Fault("flush-redis", redis.flush_redis, (1.0, 1.0), 8.0, holds_up=False),
        Fault("roll-back-redis", redis.roll_back_redis, (4.0, 8.0), 8.0, holds_up=False),
    )
    return {fault.name: fault for fault in (*faults, *(hints if program() else ()))}
