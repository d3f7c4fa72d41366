"""Tests of a real Redis; where none can be had, `.ci/run` says NOT RUN of them."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tocsin.cli.redis_server import RedisServer, program

collect_ignore_glob = [] if program() else ["test_*.py"]


@pytest.fixture
async def redis() -> AsyncIterator[RedisServer]:
    """A Redis of this test alone."""
    with tempfile.TemporaryDirectory(prefix="tocsin-redis-") as folder:
        server = RedisServer(Path(folder))
        await server.start()
        yield server
        await server.stop()
