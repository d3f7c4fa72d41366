"""Whom `bench peers` measures, and how each is configured, for a person to read beside its figures."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

PROJECT = Path(__file__).parent
"""With the peers' own pyproject.toml and uv.lock."""


@dataclass(frozen=True, slots=True)
class Peer:
    """`name` is that of its adapter, `bench/peers/<name>_peer.py`, and of its group in the peers' project, where it
    has `packages`; without packages it runs in the product's own environment.

    `defers`: a job is put in ahead and waits for its instant; else it is put in at its instant. `enqueue_seconds`: what
    putting in one job may take, generously. `processes`: numbers of workers that are
    tried; the short form tries the last alone, with which most did best.
    """

    name: str
    configuration: str
    packages: tuple[str, ...] = ()
    store: Literal["PostgreSQL", "Redis", "none"] = "PostgreSQL"
    defers: bool = True
    enqueue_seconds: float = 0.0
    processes: tuple[int, ...] = (1, 2)

    @property
    def is_bare(self) -> bool:
        """Whether it is no peer but a client in a loop."""
        return self.store == "none"

    @property
    def module(self) -> str:
        return f"bench.peers.{self.name}_peer"


PEERS = (
    Peer(
        "pgqueuer",
        "batch 100, no limit on tasks, autovac, durable, asyncpg, uvloop",
        packages=("pgqueuer",),
        enqueue_seconds=0.0003,
    ),
    Peer(
        "procrastinate",
        "concurrency 200, polls every 0.05 s, pool of 20, psycopg, uvloop",
        packages=("procrastinate",),
        enqueue_seconds=0.0006,
    ),
    Peer(
        "apscheduler",
        "AsyncIOScheduler, SQLAlchemyJobStore on PostgreSQL, uvloop; its job store allows one process; keeps no result",
        packages=("apscheduler",),
        enqueue_seconds=0.002,
        processes=(1,),
    ),
    Peer(
        "arq",
        "max_jobs 1,000, poll_delay 0.05 s, results for 1 h, uvloop",
        packages=("arq",),
        store="Redis",
        enqueue_seconds=0.001,
    ),
    Peer(
        "taskiq",
        "Redis stream, max-async-tasks 500, prefetch 500, uvloop; put in at the instant: it cannot defer to the second",
        packages=("taskiq", "taskiq-redis"),
        store="Redis",
        defers=False,
    ),
    Peer(
        "celery",
        "Redis, gevent pool of 500, prefetch multiplier 10, urllib3, results for 1 h",
        packages=("celery",),
        store="Redis",
        enqueue_seconds=0.003,
    ),
    Peer(
        "bare",
        "no peer: aiohttp in a loop, nothing kept",
        store="none",
        defers=False,
        processes=(1,),
    ),
    Peer(
        "lean",
        "no peer: the product's lean transport in a loop, nothing kept",
        store="none",
        defers=False,
        processes=(1,),
    ),
)


def locked_versions(lock: str) -> Mapping[str, str]:
    """Versions by package, of the text of a uv.lock; of several of one package, the first."""
    versions: dict[str, str] = {}
    for package in tomllib.loads(lock)["package"]:
        versions.setdefault(package["name"], package.get("version", ""))
    return versions


def version_of(peer: Peer) -> str:
    """Of its packages, as they are locked; of a peer without, nothing."""
    return ", ".join(_versions()[package] for package in peer.packages)


@cache
def _versions() -> Mapping[str, str]:
    return locked_versions((PROJECT / "uv.lock").read_text())
