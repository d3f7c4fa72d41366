"""`tocsin up` with TOCSIN_DATABASE_URL: it uses that database, starts none, ends none, and says so."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import psutil
import pytest
from typer.testing import CliRunner

from tocsin.cli.main import app
from tocsin.cli.postgres import EmbeddedPostgres, PostgresError, earlier
from tocsin.cli.up import given_postgres
from tocsin.cli.up.given_postgres import GivenPostgres
from tocsin.cli.up.machine import Machine
from tocsin.cli.up.options import UpOptions
from tocsin.common.clock import SystemClock
from tocsin.common.store.postgres.migrate import SchemaState
from up_process import (
    CLOCK,
    LEAVES_A_SERVER,
    STOP_SECONDS,
    UpProcess,
    eventually,
    keeper_of,
    lives,
    nothing_left,
    uses_a_given_database,
)


async def test_up_uses_it_starts_no_server_and_leaves_it_running(home: Path, empty_database_url: str) -> None:
    data_dir = home / "given"
    with nothing_left(data_dir) as started:
        up = UpProcess(data_dir, TOCSIN_DATABASE_URL=empty_database_url)
        started.append(up)
        keeper_of(up)
        uses_a_given_database(up)
        password = urlsplit(empty_database_url).password
        assert password
        assert password not in up.output
        up.signal(signal.SIGTERM)
        assert up.ended(STOP_SECONDS) == 0
    connection = await asyncpg.connect(empty_database_url)
    assert await connection.fetchval("select count(*) from placements") == 1
    await connection.close()


def kill_where_only_the_guardian_can_end_the_rest(up: UpProcess) -> None:
    """Ray's agents stand still, so do not see that they are orphans, and the guardian sees nothing until all those are
    gone by which it could tell whose the agents are."""
    guardian = up.child("tocsin.cli.up.guardian")
    agents = [up.child("ray::DashboardAgent"), up.child("ray::RuntimeEnvAgent")]
    for process in (guardian, *agents):
        process.suspend()
    up.signal(signal.SIGKILL)
    up.ended(STOP_SECONDS)
    others = up.seen.difference((guardian, *agents))
    eventually(lambda: not any(map(lives, others)), 30.0, "an end of all others")
    guardian.resume()


@pytest.mark.timeout(300)
def test_one_up_to_a_database_and_another_once_that_is_killed(home: Path, empty_database_url: str) -> None:
    placed = "select generation from placements where cell = 'shared'"
    with nothing_left(home / "first", 20.0) as started, nothing_left(home / "second") as refused:
        first = UpProcess(home / "first", "--executors", "1", TOCSIN_DATABASE_URL=empty_database_url)
        started.append(first)
        first.serving()
        second = UpProcess(home / "second", "--executors", "2", TOCSIN_DATABASE_URL=empty_database_url)
        refused.append(second)
        assert second.ended(60.0) == 1
        assert second.lines[-1].startswith("tocsin: another Tocsin works on the database at 127.0.0.1:"), second.output
        assert not (second.data_dir / "logs").exists()
        assert first.ask("select executors from placements where cell = 'shared'") == 1
        assert first.ask(placed) == 1
        kill_where_only_the_guardian_can_end_the_rest(first)
        again = UpProcess(home / "first", TOCSIN_DATABASE_URL=empty_database_url)
        started.append(again)
        again.serving()
        assert again.ask(placed) == 2
        again.signal(signal.SIGTERM)
        assert again.ended(STOP_SECONDS) == 0


@pytest.mark.parametrize(("setting", "kind"), [("postgresql://db.example/x", GivenPostgres), ("", EmbeddedPostgres)])
def test_only_a_setting_that_is_set_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, kind: type
) -> None:
    asked: list[UpOptions] = []

    async def up(options: UpOptions, egress_allow: str) -> None:
        asked.append(options)
        made = Machine(options, SystemClock(), egress_allow)
        assert type(made.postgres) is kind
        await made.stop()

    monkeypatch.setattr("tocsin.cli.up.command.up", up)
    monkeypatch.setenv("TOCSIN_DATABASE_URL", setting)
    result = CliRunner().invoke(app, ["up", "--data-dir", str(tmp_path)])
    assert (result.exit_code, len(asked)) == (0, 1), result.output


def refused(url: str, data_dir: Path) -> str:
    """The sentence with which it is refused; the data directory is free again."""
    given = GivenPostgres(url, data_dir, CLOCK)
    with pytest.raises(PostgresError) as error:
        given.start()
    given.stop()
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"netloc": "who:hush@127.0.0.1:9"}, "onnect call failed|refused"),
        ({"path": "/none"}, 'database "none" does not exist'),
        ({"netloc": "tocsin:hush@{place}"}, "password authentication failed"),
    ],
)
def test_one_that_cannot_be_used_is_named_with_its_setting(
    tmp_path: Path, empty_database_url: str, change: dict[str, str], reason: str
) -> None:
    parts = urlsplit(empty_database_url)
    place = parts.netloc.rpartition("@")[2]
    url = parts._replace(**{name: value.format(place=place) for name, value in change.items()}).geturl()
    said = refused(url, tmp_path / "data")
    changed = urlsplit(url)
    named = f"the database at {changed.hostname}:{changed.port}{changed.path} cannot be used"
    assert said.startswith(f"TOCSIN_DATABASE_URL: {named}: ")
    assert any(word in said for word in reason.split("|")), said
    assert "hush" not in said


def test_up_refuses_one_that_is_away_before_it_starts_anything(home: Path) -> None:
    data_dir = home / "away"
    with nothing_left(data_dir) as started:
        up = UpProcess(data_dir, TOCSIN_DATABASE_URL="postgresql://127.0.0.1:9/none")
        started.append(up)
        assert up.ended(60.0) == 1
    assert len(up.lines) == 1
    assert up.lines[0].startswith("tocsin: TOCSIN_DATABASE_URL: the database at 127.0.0.1:9/none cannot be used: ")
    assert not (data_dir / "logs").exists()


def pretend(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    async def state(_: str) -> SchemaState:
        return SchemaState(version, ())

    monkeypatch.setattr(given_postgres, "schema_state", state)


def test_one_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "14.11")
    url = "postgresql://db.example/x"
    said = refused(url, tmp_path)
    assert said == "TOCSIN_DATABASE_URL: the server at db.example/x is PostgreSQL 14.11; Tocsin needs 15 to 18"
    with monkeypatch.context() as twin:
        twin.setattr(given_postgres, "OLDEST_MAJOR", 0)
        with pytest.raises(pytest.fail.Exception):
            refused(url, tmp_path / "twin")


def test_a_new_one_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = "postgresql:///x?host=/run/postgresql"
    for version, warned in (("15.0", False), ("19.1", True)):
        pretend(monkeypatch, version)
        given = GivenPostgres(url, tmp_path, CLOCK)
        assert given.start() == url
        given.stop()
        assert any(record.levelname == "WARNING" for record in caplog.records) is warned


def left_server(data_dir: Path, url: str) -> psutil.Process:
    """The server that a killed `up` left in the data directory, after a start with another database there."""
    said = subprocess.run([sys.executable, "-c", LEAVES_A_SERVER, data_dir], check=True, capture_output=True, text=True)
    left = psutil.Process(int(said.stdout))
    given = GivenPostgres(url, data_dir, CLOCK)
    try:
        assert given.start() == url
    finally:
        given.stop()
    return left


def test_an_embedded_server_that_was_left_behind_is_ended(
    home: Path, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not lives(left_server(home / "left", empty_database_url))
    assert not (home / "left" / "cluster" / "postmaster.pid").exists()
    with monkeypatch.context() as twin:
        twin.setattr(given_postgres, "end_earlier_server", lambda *_, **__: None)
        assert lives(left_server(home / "left", empty_database_url))
    with monkeypatch.context() as foreign:
        foreign.setattr(earlier, "SOCKET_FOLDER_PREFIX", "of another hand")
        started = GivenPostgres(empty_database_url, home / "left", CLOCK)
        started.start()
        started.stop()
        assert (home / "left" / "cluster" / "postmaster.pid").exists(), "it is not ours to end"
    assert not lives(left_server(home / "left", empty_database_url))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://who:hush@db.example:5432,other/x?password=hush&sslmode=require", "db.example:5432,other/x"),
        ("postgresql:///x?host=/run/postgresql&user=who&password=hush", "/x?host=/run/postgresql"),
        ("postgresql://?host=/run/a%20b&port=5433&dbname=x", "?host=/run/a b&port=5433&dbname=x"),
    ],
)
def test_the_place_tells_where_and_no_secret(tmp_path: Path, url: str, place: str) -> None:
    assert GivenPostgres(url, tmp_path, CLOCK).place == place


def test_the_data_directory_has_one_owner_with_either_database(tmp_path: Path, empty_database_url: str) -> None:
    tmp_path.chmod(0o755)
    first = GivenPostgres(empty_database_url, tmp_path / "data", CLOCK)
    assert first.start() == empty_database_url
    assert f"in use by another tocsin (pid {os.getpid()})" in refused(empty_database_url, tmp_path / "data")
    first.stop()
    again = GivenPostgres(empty_database_url, tmp_path / "data", CLOCK)
    again.start()
    again.stop()
    again.stop()
