"""The hint index as the settings ask for it, where there is none: what an owner is given, and what `doctor` says."""

from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import SecretStr

from tocsin.cli.commands.doctor import Finding, examine, setting_rows
from tocsin.cli.hints import database_name, hint_index
from tocsin.common.clock import DatabaseClock, SystemClock
from tocsin.common.settings import Settings

NOBODY = "redis://:hush@127.0.0.1:1/0"


def settings(mode: Literal["off", "on", "auto"], url: str | None) -> Settings:
    return Settings(hints=mode, redis_url=None if url is None else SecretStr(url))


async def found(chosen: Settings) -> Finding:
    (finding,) = [finding for finding in await examine(chosen) if finding.part == "hints"]
    return finding


UNUSABLE = f"{NOBODY}?socket_timeout=soon"


@pytest.mark.parametrize(
    ("mode", "url", "warned"),
    [("off", NOBODY, False), ("on", None, True), ("auto", None, True), ("on", UNUSABLE, True)],
)
async def test_no_index_where_none_is_asked_for_or_none_can_be_had(
    mode: Any, url: str | None, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with hint_index(settings(mode, url)) as make:
        assert make is None
    assert bool(caplog.records) is warned
    assert "hush" not in caplog.text


async def test_a_redis_that_is_not_there_is_nobodys_start() -> None:
    """An owner has its index all the same: it fails, until there is one."""
    clock = SystemClock()
    database_clock = DatabaseClock(clock)
    database_clock.sample(clock.now(), clock.monotonic(), clock.monotonic())
    async with hint_index(settings("auto", NOBODY)) as make:
        assert make is not None
        with pytest.raises(Exception, match=r"connecting to 127\.0\.0\.1:1") as refused:
            await make(database_clock).due([UUID(int=1)], 1.0, 1)
        assert "hush" not in str(refused.value)


def test_the_hints_are_those_of_the_database() -> None:
    assert database_name(Settings(database_url=SecretStr("postgresql://u:p@h:1/a%20name?x=y"))) == "a%2520name"


async def test_doctor_says_what_there_is_of_hints() -> None:
    off = await found(settings("off", None))
    assert (off.sound, off.text) == (True, "off: due runs are found by looks at the queues")
    without = await found(settings("on", None))
    assert (without.sound, "TOCSIN_REDIS_URL names no Redis" in without.text) == (False, True)
    gone = await found(settings("auto", NOBODY))
    assert not gone.sound
    assert "runs are found without it" in gone.text
    assert "hush" not in gone.text


def test_doctor_shows_no_password_of_a_redis() -> None:
    rows = {row[0]: row for row in setting_rows(settings("auto", NOBODY))}
    assert rows["TOCSIN_REDIS_URL"] == [
        "TOCSIN_REDIS_URL",
        "redis://:***@127.0.0.1:1/0",
        "environment TOCSIN_REDIS_URL",
    ]
    assert rows["TOCSIN_HINTS"][1] == "auto"
