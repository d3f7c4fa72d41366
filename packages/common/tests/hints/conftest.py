"""Lets the test files here import what lies in `support`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))  # pytest's importlib mode adds no folder itself

import tempfile
from collections.abc import AsyncIterator

import pytest

from redis_bench import RedisBench
from tocsin.cli.redis_server import program

collect_ignore = [] if program() else ["test_redis_hints.py"]
"""Where no Redis can be had, `.ci/run` says NOT RUN of them."""


@pytest.fixture
async def redis() -> AsyncIterator[RedisBench]:
    """A Redis of this test alone."""
    with tempfile.TemporaryDirectory(prefix="tocsin-redis-") as folder:
        bench = RedisBench(Path(folder))
        await bench.start()
        yield bench
        await bench.close()
