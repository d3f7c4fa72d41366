"""A bench of executor nodes over the test's own database, and the network before it."""

import gc
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))  # pytest's importlib mode adds no folder itself

from faulty_network import Network
from node_bench import CrashPoints, NodeBench
from scripted_endpoint import Endpoint, listening
from tocsin.common import crashpoints
from tocsin.common.clock import SystemClock


@pytest.fixture(autouse=True)
def usual_garbage_collection() -> Iterator[None]:
    """A node sets the collector for its own process; here that is everybody's."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.fixture
def points() -> Iterator[CrashPoints]:
    made = CrashPoints()
    crashpoints.set_handler(made)
    yield made
    crashpoints.set_handler(None)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with listening(SystemClock()) as made:
        yield made


@pytest.fixture
async def network(database_url: str) -> AsyncIterator[Network]:
    """A way to the test's database that can fail."""
    parts = urlsplit(database_url)
    assert parts.hostname is not None
    made = Network((parts.hostname, parts.port or 5432))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def bench(
    database_url: str, endpoint: Endpoint, points: CrashPoints, network: Network
) -> AsyncIterator[NodeBench]:
    """Nodes end before the network that some of them use."""
    assert network.port
    made = NodeBench(database_url, endpoint, points)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def faulty_url(database_url: str, network: Network) -> str:
    """The test's database, by that way."""
    parts = urlsplit(database_url)
    return parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{network.port}").geturl()
