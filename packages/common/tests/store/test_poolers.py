"""B66: a pooler between a process and PostgreSQL is refused as it connects, with a sentence that says what to do."""

import pytest

from pooler import pooled
from tocsin.common.store.postgres import database as module
from tocsin.common.store.postgres.database import Database, PooledError
from tocsin.common.store.postgres.migrate import MigrationError, migrate

PASSES_ALL = {"drop_settings": False, "own_pids": False}
TELLS_PIDS_OF_ITS_OWN = {"drop_settings": False, "own_pids": True}
DROPS_SETTINGS = {"drop_settings": True, "own_pids": False}


async def opened_through(url: str, pooler: dict[str, bool]) -> None:
    async with pooled(url, **pooler) as through:
        database = Database(through, "through", size=2)
        try:
            await database.open()
            assert len(await database.fetch("now")) == 1
        finally:
            await database.close()


async def test_b66_a_proxy_that_passes_all_is_none(database_url: str) -> None:
    await opened_through(database_url, PASSES_ALL)


@pytest.mark.parametrize("pooler", [TELLS_PIDS_OF_ITS_OWN, DROPS_SETTINGS], ids=["its own pids", "drops settings"])
async def test_b66_a_pooler_is_refused(database_url: str, pooler: dict[str, bool]) -> None:
    with pytest.raises(PooledError, match="must name PostgreSQL itself"):
        await opened_through(database_url, pooler)


@pytest.mark.parametrize("pooler", [TELLS_PIDS_OF_ITS_OWN, DROPS_SETTINGS], ids=["its own pids", "drops settings"])
async def test_b66_a_pool_that_looks_at_nothing_is_caught(
    database_url: str, monkeypatch: pytest.MonkeyPatch, pooler: dict[str, bool]
) -> None:
    async def content(_: object) -> None:
        """Takes every session for its own."""

    monkeypatch.setattr(module, "_require_own_session", content)
    await opened_through(database_url, pooler)  # goes on, and rule 4 would close the wrong session


async def test_b66_a_migration_is_refused_and_not_waited_for(empty_database_url: str) -> None:
    async with pooled(empty_database_url, **TELLS_PIDS_OF_ITS_OWN) as through:
        with pytest.raises(MigrationError, match="must name PostgreSQL itself"):
            await migrate(through)
