"""Lets the test files here import what lies beside them, and gives each test a store of its own."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

from store_bench import Bench, MemoryBench, PostgresBench


@pytest.fixture
def memory_bench() -> MemoryBench:
    return MemoryBench()


@pytest.fixture
async def postgres_bench(database_url: str) -> AsyncIterator[PostgresBench]:
    bench = PostgresBench(database_url)
    await bench.open()
    yield bench
    await bench.close()


@pytest.fixture(params=["memory", "postgres"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """One store after the other, each with the same checks."""
    made = request.getfixturevalue(f"{request.param}_bench")
    assert isinstance(made, Bench)
    return made
