"""`tocsin tenant`, `key`, `task`, `doctor` and `migrate`, on a database of their own."""

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner, Result

from tocsin.cli.main import app
from tocsin.common.keys import hash_key
from tocsin.common.store.postgres import migrate


@pytest.fixture
def here(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", database_url)
    return database_url


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A process that serves sets up its log lines; here the process is the tests' own."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def tocsin(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result


def refused(*arguments: str) -> str:
    """The one sentence with which a command is refused. No traceback may show."""
    result = tocsin(*arguments, code=1)
    lines = result.output.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("tocsin: ")
    return lines[0]


def fetch(url: str, statement: str, *args: object) -> Any:
    async def ask() -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetch(statement, *args)
        finally:
            await connection.close()

    return asyncio.run(ask())


def test_a_tenant_is_made_with_a_key_and_a_secret(here: str) -> None:
    said = tocsin("tenant", "create", "acme", "--weight", "2.5", "--max-in-flight", "40").output
    key = re.search(r"API key +(tocsin_[0-9a-f]{64})$", said, re.MULTILINE)
    secret = re.search(r"signing secret +(whsec_[A-Za-z0-9+/]{43}=)$", said, re.MULTILINE)
    assert key
    assert secret
    [row] = fetch(here, "select t.*, k.hash from tenants t join api_keys k on k.tenant_id = t.id")
    assert (row["name"], row["weight"], row["max_in_flight"]) == ("acme", 2.5, 40)
    assert row["hash"] == hash_key(key[1])
    assert row["signing_secrets"] == [secret[1]]
    assert "acme" in refused("tenant", "create", "acme")
    listed = tocsin("tenant", "list").output.splitlines()
    assert listed[0].split() == ["id", "name", "cell", "shard", "weight", "max", "in", "flight", "per", "endpoint"]
    assert listed[1].split()[1:] == ["acme", "shared", str(row["shard"]), "2.5", "40", "no", "limit"]


def test_a_tenant_is_promoted_and_demoted(here: str) -> None:
    tocsin("tenant", "create", "acme")
    assert "no cell of its own" in refused("tenant", "demote", "acme")
    cell = tocsin("tenant", "promote", "acme", "--executors", "2").output.split()[-1]
    [row] = fetch(here, "select executors, closing from placements where cell = $1", cell)
    assert tuple(row) == (2, False)
    assert cell in tocsin("tenant", "list").output
    assert "demote it first" in refused("tenant", "promote", "acme", "--executors", "3")
    tocsin("tenant", "demote", "acme")
    [row] = fetch(here, "select closing from placements where cell = $1", cell)
    assert row["closing"]
    assert "about to leave it" in refused("tenant", "promote", "acme")
    assert "no tenant is named 'nobody'" in refused("tenant", "promote", "nobody")


def test_a_cell_has_no_more_executors_than_its_tenant_may_have_calls(here: str) -> None:
    """Rule 1, k <= cap: each of the k shards may have one call at least."""
    tocsin("tenant", "create", "small", "--max-in-flight", "3")
    assert "cap of 4 calls in flight" in refused("tenant", "promote", "small", "--executors", "4")
    tocsin("tenant", "promote", "small", "--executors", "3")
    assert "cap of 3 calls in flight" in refused("tenant", "set", "small", "--max-in-flight", "2")


def test_limits_of_a_tenant_are_changed(here: str) -> None:
    tocsin("tenant", "create", "acme", "--max-in-flight-per-endpoint", "4")
    limits = "select weight, max_in_flight, max_in_flight_per_endpoint from tenants"
    changes: list[tuple[list[str], tuple[float, int, int | None]]] = [
        (["--weight", "2.5"], (2.5, 1000, 4)),
        (["--max-in-flight", "40", "--max-in-flight-per-endpoint", "7"], (2.5, 40, 7)),
        (["--max-in-flight-per-endpoint", "none"], (2.5, 40, None)),
    ]
    for arguments, expected in changes:
        said = tocsin("tenant", "set", "acme", *arguments).output.splitlines()
        assert tuple(fetch(here, limits)[0]) == expected
        assert said[1].split()[4:6] == [f"{expected[0]:g}", str(expected[1])]
    assert "no tenant is named 'nobody'" in refused("tenant", "set", "nobody", "--weight", "2")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["set", "acme"], 1),
        (["set", "acme", "--max-in-flight-per-endpoint", "many"], 1),
        (["set", "acme", "--max-in-flight-per-endpoint", "0"], 1),
        (["set", "acme", "--max-in-flight-per-endpoint", "9999999999"], 1),
        (["set", "acme", "--max-in-flight", "0"], 2),
        (["set", "acme", "--weight", "nan"], 2),
        (["set", "acme", "--weight", "0"], 2),
        (["create", "b", "--weight", "1e300"], 2),
        (["create", "b", "--max-in-flight", "9999999999"], 2),
        (["create", ""], 1),
        (["create", "x" * 201], 1),
    ],
)
def test_limits_that_make_no_sense_are_refused(here: str, arguments: list[str], code: int) -> None:
    tocsin("tenant", "create", "acme")
    assert "Traceback" not in tocsin("tenant", *arguments, code=code).output
    [row] = fetch(here, "select weight, max_in_flight, max_in_flight_per_endpoint from tenants")
    assert tuple(row) == (1.0, 1000, None)


def test_what_an_operator_changes_is_recorded(here: str) -> None:
    said = tocsin("tenant", "create", "acme").output
    tocsin("tenant", "set", "acme", "--weight", "2")
    key_id = tocsin("key", "create", "acme", "--name", "night shift").output.split()[2]
    tocsin("key", "revoke", key_id)
    tocsin("tenant", "promote", "acme")
    tocsin("tenant", "demote", "acme")
    rows = fetch(here, "select actor, action, tenant_id::text as tenant, detail from audit order by id")
    actions = ["tenant.create", "key.create", "tenant.set", "key.create", "key.revoke"]
    assert [row["action"] for row in rows] == [*actions, "tenant.promote", "tenant.demote"]
    assert {(row["actor"], row["tenant"]) for row in rows} == {("cli", said.split()[1])}
    for secret in re.findall(r"(?:tocsin_|whsec_)\S+", said):
        assert not [row for row in rows if secret in row["detail"]]


def test_keys_are_made_listed_and_revoked(here: str) -> None:
    tocsin("tenant", "create", "acme")
    said = tocsin("key", "create", "acme", "--name", "night shift").output
    key_id = re.search(r"key id +(\S+)", said)
    key = re.search(r"API key +(\S+)", said)
    assert key_id
    assert key
    assert fetch(here, "select 1 from api_keys where hash = $1", hash_key(key[1]))
    listed = tocsin("key", "list", "acme").output
    assert "night shift" in listed
    assert key[1] not in listed
    tocsin("key", "revoke", key_id[1])
    [row] = fetch(here, "select revoked_at from api_keys where id = $1::uuid", key_id[1])
    assert row["revoked_at"] is not None
    assert "not revoked" in refused("key", "revoke", key_id[1])
    assert "no tenant is named 'nobody'" in refused("key", "list", "nobody")


def test_tasks_are_listed_page_by_page(here: str) -> None:
    tocsin("tenant", "create", "acme")
    assert tocsin("task", "list", "acme").output.split() == ["id", "name", "state", "next", "due", "fault"]
    fetch(
        here,
        """insert into tasks (id, tenant_id, name, plan, call, state)
           select gen_random_uuid(), t.id, 'task ' || i, '{"x": 1}', '{}', 'active'
             from tenants t, generate_series(1, 501) i""",
    )
    listed = tocsin("task", "list", "acme").output.splitlines()[1:]
    assert len(listed) == 501
    assert "faulty" in listed[0]


def test_doctor_finds_a_sound_database(here: str) -> None:
    said = tocsin("doctor").output
    assert re.search(r"^ok +database: PostgreSQL \d+\.\d+, all migrations applied$", said, re.MULTILINE)
    assert re.search(r"^ok +zone data: \d{4}[a-z], as in all 0 live executors$", said, re.MULTILINE)
    assert "BROKEN" not in said
    assert re.search(r"^TOCSIN_DATABASE_URL .* environment TOCSIN_DATABASE_URL$", said, re.MULTILINE)
    assert re.search(r"^TOCSIN_CELL +shared +default$", said, re.MULTILINE)


def test_doctor_masks_secrets(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", here + "?password=hush")
    said = tocsin("doctor").output
    password = here.partition("tocsin:")[2].partition("@")[0]
    assert password
    assert [secret for secret in (password, "hush") if secret in said] == []
    assert "tocsin:***@127.0.0.1" in said


@pytest.mark.parametrize(
    ("name", "value", "finding"),
    [
        ("TOCSIN_DATABASE_URL", "postgresql://127.0.0.1:9/none", "BROKEN  database: .*refused|Connect call failed"),
        ("TOCSIN_EGRESS_ALLOW", "10.0.0.0/99", "BROKEN  egress: TOCSIN_EGRESS_ALLOW: '10.0.0.0/99' must be a network"),
        ("TOCSIN_MAX_IN_FLIGHT", "900000000", "BROKEN  open files: .*fewer than TOCSIN_MAX_IN_FLIGHT"),
    ],
)
def test_doctor_finds_what_is_broken(
    here: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str, finding: str
) -> None:
    monkeypatch.setenv(name, value)
    assert re.search(finding, tocsin("doctor", code=1).output)


def test_doctor_finds_an_empty_database(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", empty_database_url)
    assert "0001_init.sql not applied: run `tocsin migrate`" in tocsin("doctor", code=1).output
    assert "applied 0001_init.sql" in tocsin("migrate").output
    assert tocsin("migrate").output == "the database is up to date\n"
    assert "BROKEN" not in tocsin("doctor").output


def test_doctor_finds_a_migration_that_was_changed(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = migrate.migrations()
    changed = [(number, name, text + "-- changed") for number, name, text in known]
    monkeypatch.setattr(migrate, "migrations", lambda: changed)
    assert "applied in another form" in tocsin("doctor", code=1).output
    assert "applied in another form" in refused("migrate")


def test_doctor_finds_executors_with_other_zone_data(here: str) -> None:
    fetch(
        here,
        """insert into leases (id, cell, generation, node, boot, pid_namespace, pid, process_started, zone_data, ttl)
           values (gen_random_uuid(), 'shared', 1, 'n', 'b', 'p', 1, 1, '1999z', interval '10 s')""",
    )
    assert re.search("BROKEN  zone data: .* executors run with 1999z", tocsin("doctor", code=1).output)


def test_a_database_that_is_away_or_empty_is_named(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", "postgresql://127.0.0.1:9/none")
    assert "127.0.0.1" in refused("tenant", "list")
    monkeypatch.setenv("TOCSIN_DATABASE_URL", empty_database_url)
    assert refused("tenant", "list").endswith("run `tocsin migrate`")


def test_a_setting_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_API_PORT", "eighty")
    assert refused("doctor").startswith("tocsin: TOCSIN_API_PORT: ")


@pytest.mark.parametrize("command", ["migrate", "api", "engine", "doctor", "up"])
def test_a_url_that_names_no_database_is_refused_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", "postgresql://tocsin:hush@127.0.0.1:port/tocsin")
    monkeypatch.setattr("tocsin.cli.commands.serve.configure_logging", lambda: None)
    assert refused(command) == "tocsin: TOCSIN_DATABASE_URL: must be like postgresql://user:password@host:5432/name"


@pytest.mark.parametrize("command", ["up", "engine"])
def test_an_egress_list_that_cannot_be_read_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setenv("TOCSIN_EGRESS_ALLOW", "10.1.0.0/16, 10.0.0.0/99")
    monkeypatch.setenv("TOCSIN_DATABASE_URL", "postgresql://127.0.0.1:9/none")
    monkeypatch.setenv("TOCSIN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr("tocsin.cli.up.command.configure_logging", lambda *_: None)
    monkeypatch.setattr("tocsin.cli.commands.serve.configure_logging", lambda: None)
    assert refused(command).startswith("tocsin: TOCSIN_EGRESS_ALLOW: '10.0.0.0/99' must be a network like ")
    assert not (tmp_path / "data").exists()


def test_a_trust_margin_that_leaves_no_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_LEASE_TTL_SECONDS", "8")
    monkeypatch.setenv("TOCSIN_TRUST_MARGIN_SECONDS", "4")
    said = "tocsin: TOCSIN_TRUST_MARGIN_SECONDS: must be less than half of TOCSIN_LEASE_TTL_SECONDS, which is 8.0 s"
    for command in ("up", "engine", "doctor"):
        assert refused(command) == said
