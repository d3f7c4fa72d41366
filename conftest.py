"""What every suite shares: a real PostgreSQL, a database of its own for each test, and tool settings.

The server starts when the first test asks for a database. `TOCSIN_TEST_POSTGRES_BIN` (a folder with
`postgres` and `initdb`) chooses another one than the PostgreSQL 18 that Tocsin installs; such a folder
is what `tocsin.cli.postgres.binaries(major)` finds, once the group `postgres-majors` is installed.
"""

import os

# Ray reads these when it is imported, and so must no module that imports it come first.
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"  # workers import from the workspace instead of a copy
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # listen on 127.0.0.1 only
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - else they start at nice 15 and miss heartbeats

import asyncio
import faulthandler
import itertools
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key  # standard error as it was before pytest captured it
from hypothesis import settings

from tocsin.cli.postgres import EmbeddedPostgres, throwaway_settings

_ROOM_BYTES = 4 << 30
"""What several workers' servers may take, with room to spare."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The whole suite often waits: three processes take 8 minutes on two cores, two take 9:45. A part of it that was
    named needs no second one."""
    return 3 if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """A test's end has the limit `faulthandler_timeout` too: pytest takes its own timer back once the test has failed,
    and pytest-timeout's has fired by then."""
    limit = float(item.config.getini("faulthandler_timeout"))
    if limit > 0:
        faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[fault_handler_stderr_fd_key])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


settings.register_profile("default", max_examples=50, deadline=None, print_blob=True)
settings.load_profile("default")

T = TypeVar("T")


class Databases:
    """Makes and drops databases on the session's server, over one connection.

    That connection lives on a loop of its own in a thread, so that fixtures work for tests with and
    without a loop.
    """

    def __init__(self, server_url: str) -> None:
        self.server_url = server_url
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-databases", daemon=True)
        self._thread.start()
        self._connection = self.run(asyncpg.connect(server_url))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end on the loop of this object."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def url(self, name: str) -> str:
        return urlsplit(self.server_url)._replace(path=f"/{name}").geturl()

    def create(self, template: str = "template0") -> str:
        """A new database with a name that nothing else has."""
        name = f"test_{next(self._numbers)}"
        # Copying files beats writing the template to the WAL: 20 ms against 105 ms for 25 tables.
        self._execute(f'create database "{name}" template "{template}" strategy file_copy')
        return name

    def drop(self, name: str) -> None:
        self._execute(f'drop database "{name}" with (force)')

    def close(self) -> None:
        self.run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _execute(self, statement: str) -> None:
        self.run(self._connection.execute(statement))


def _in_memory() -> Path | None:
    """Where files lie in memory, if there is room: a database a test is a thousand files, made and thrown away, and
    half of a store test's time on a disk."""
    folder = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    roomy = folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ROOM_BYTES
    return folder if roomy else None


@pytest.fixture(scope="session")
def open_tmp_path() -> Iterator[Path]:
    """A folder that every account can reach, unlike `tmp_path`: as root, the server runs as nobody."""
    folder = Path(tempfile.mkdtemp(prefix="tocsin-test-", dir=_in_memory()))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def databases(open_tmp_path: Path) -> Iterator[Databases]:
    """The session's server. Commits are answered as in production, but power cuts would lose data."""
    chosen = os.environ.get("TOCSIN_TEST_POSTGRES_BIN")
    bin_dir = Path(chosen) if chosen else None
    with EmbeddedPostgres(open_tmp_path / "postgres", bin_dir=bin_dir, settings=throwaway_settings()) as server:
        made = Databases(server.dsn)
        yield made
        made.close()


@pytest.fixture(scope="session")
def migrated_template(databases: Databases) -> str:
    """The name of a database that has been migrated and is copied for each test."""
    from tocsin.common.store.postgres.migrate import migrate

    name = databases.create()
    databases.run(migrate(databases.url(name)))
    return name


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[str]:
    """The URL of an empty database of this test alone; dropped afterwards, whoever is still connected."""
    name = databases.create()
    yield databases.url(name)
    databases.drop(name)


@pytest.fixture
def database_url(databases: Databases, migrated_template: str) -> Iterator[str]:
    """The URL of a migrated database of this test alone; dropped afterwards, whoever is still connected."""
    name = databases.create(template=migrated_template)
    yield databases.url(name)
    databases.drop(name)
