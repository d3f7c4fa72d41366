"""The idempotent-create machine in short: on the store in memory, on PostgreSQL, and through the API's socket."""

import pytest

from property_tests.idempotency import HttpIdempotencyMachine, IdempotencyMachine, PostgresIdempotencyMachine
from property_tests.machine import Profile, play

SEED = 20_260_311


def test_one_task_for_a_key() -> None:
    play(IdempotencyMachine, Profile(examples=80, steps=12), SEED)


def test_one_task_for_a_key_on_postgres(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresIdempotencyMachine, "url", database_url)
    play(PostgresIdempotencyMachine, Profile(examples=15, steps=12), SEED)


def test_one_task_for_a_key_through_the_api(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpIdempotencyMachine, "url", database_url)
    play(HttpIdempotencyMachine, Profile(examples=8, steps=10), SEED)
