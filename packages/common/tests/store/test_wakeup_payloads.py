"""The payloads of wake-ups: what is written is read back, and what cannot be read names nothing."""

from uuid import UUID

import pytest

from tocsin.common.store.postgres.wakeups import Named, cancel_payload, parse_payload, queue_payload

ONE, TWO = UUID(int=1), UUID(int=2)


def test_queues_are_read_back() -> None:
    assert parse_payload(queue_payload([(ONE, 0), (TWO, 3)])) == Named(queues=[(ONE, 0), (TWO, 3)])


def test_cancelled_runs_are_read_back() -> None:
    assert parse_payload(cancel_payload([ONE, TWO])) == Named(cancelled=[ONE, TWO])


def test_one_payload_may_name_everything() -> None:
    payload = ",".join([queue_payload([(ONE, 2)]), "tenants", cancel_payload([TWO]), queue_payload([(TWO, 1)])])
    assert parse_payload(payload) == Named(queues=[(ONE, 2), (TWO, 1)], cancelled=[TWO], tenants=True)


@pytest.mark.parametrize(
    "item", ["", "cancel", "cancel ", "cancel 7", f"cancel {ONE} 1", f"cancelled {ONE}", f"queue {ONE}", "queue 1 x"]
)
def test_what_cannot_be_read_names_nothing_and_hides_nothing(item: str) -> None:
    assert parse_payload(item) == Named()
    assert parse_payload(f"{item},{cancel_payload([TWO])}") == Named(cancelled=[TWO])
