"""Lets the test files here import what lies in `support`, and gives each test an owner over a store in memory."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

from engine_bench import EngineBench


@pytest.fixture
async def bench() -> EngineBench:
    """A store in memory with one executor, which owns every shard."""
    made = EngineBench()
    await made.start()
    return made
