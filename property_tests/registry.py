"""All machines, each with the profile of one portion of a deep run and its share of the steps; and all broken twins."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from property_tests.fairness import FairnessMachine
from property_tests.hints import EarlyHintMachine, HintMachine
from property_tests.idempotency import HttpIdempotencyMachine, IdempotencyMachine, PostgresIdempotencyMachine
from property_tests.lease import LeaseMachine
from property_tests.lifecycle import LifecycleMachine, PostgresLifecycleMachine
from property_tests.machine import Machine, Profile
from property_tests.moves import MoveMachine
from property_tests.mutant import Mutant
from property_tests.mutants import fairness, hints, idempotency, lease, lifecycle, moves, timing
from property_tests.redis_hints import RedisHintMachine
from property_tests.timing import TimingMachine
from property_tests.world.backends import Server
from tocsin.cli.redis_server import program

MACHINES: dict[str, tuple[type[Machine], Profile, int]] = {
    "LifecycleMachine": (LifecycleMachine, Profile(40, 60), 8),
    "PostgresLifecycleMachine": (PostgresLifecycleMachine, Profile(10, 60), 2),
    "LeaseMachine": (LeaseMachine, Profile(100, 50), 4),
    "MoveMachine": (MoveMachine, Profile(50, 40), 3),
    "FairnessMachine": (FairnessMachine, Profile(100, 50), 3),
    "TimingMachine": (TimingMachine, Profile(200, 30), 3),
    "IdempotencyMachine": (IdempotencyMachine, Profile(300, 15), 1),
    "PostgresIdempotencyMachine": (PostgresIdempotencyMachine, Profile(20, 12), 1),
    "HttpIdempotencyMachine": (HttpIdempotencyMachine, Profile(20, 12), 1),
    "HintMachine": (HintMachine, Profile(60, 25), 2),
    "EarlyHintMachine": (EarlyHintMachine, Profile(40, 15), 1),
    "RedisHintMachine": (RedisHintMachine, Profile(20, 25), 1),
}

NEEDS_POSTGRES = {"PostgresLifecycleMachine", "PostgresIdempotencyMachine", "HttpIdempotencyMachine"}

EVERY_MUTANT: Sequence[Mutant] = (
    *lifecycle.MUTANTS,
    *lease.MUTANTS,
    *moves.MUTANTS,
    *fairness.MUTANTS,
    *timing.MUTANTS,
    *idempotency.MUTANTS,
    *hints.MUTANTS,
)

if program() is None:  # `.ci/run` then says NOT RUN of what needs a Redis
    del MACHINES[RedisHintMachine.__name__]

MUTANTS: Sequence[Mutant] = tuple(mutant for mutant in EVERY_MUTANT if mutant.machine.__name__ in MACHINES)
"""Those that can be hunted on this machine."""


@contextmanager
def servers_of(machines: Iterable[str]) -> Iterator[None]:
    """What these machines need besides this process: a PostgreSQL, or nothing."""
    if not NEEDS_POSTGRES & set(machines):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tocsin-worlds-") as folder:
        Path(folder).chmod(0o755)  # as root, the server runs as nobody
        with Server.running(Path(folder) / "postgres"):
            yield
