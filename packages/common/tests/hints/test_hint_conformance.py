"""One suite for every hint index; and the liars that Tocsin ships for tests are each caught by it."""

import random
from collections.abc import Callable

import pytest

from hint_checks import (
    KEPT,
    NOW,
    OF_USE,
    Check,
    a_removed_run_is_not_named,
    an_empty_index_names_nothing,
    only_asked_tenants_are_named,
    only_what_was_added_is_named,
)
from honest_hints import HonestHints
from tocsin.common.clock import ManualClock
from tocsin.common.hints.lying import FailingHints, ForeignHints, InventedHints, StaleHints
from tocsin.common.hints.null import NullHints
from tocsin.common.hints.port import HintIndex

Make = Callable[[ManualClock], HintIndex]

INDEXES: dict[str, Make] = {"null": lambda _clock: NullHints(), "honest": HonestHints}


@pytest.mark.parametrize("make", INDEXES.values(), ids=INDEXES.keys())
@pytest.mark.parametrize("check", KEPT, ids=lambda check: check.__name__)
async def test_promise_11_what_every_index_keeps(make: Make, check: Check) -> None:
    clock = ManualClock(NOW)
    await check(make(clock), clock)


@pytest.mark.parametrize("check", OF_USE, ids=lambda check: check.__name__)
async def test_what_an_index_of_use_does(check: Check) -> None:
    clock = ManualClock(NOW)
    await check(HonestHints(clock), clock)


LIARS: dict[str, tuple[Make, Check]] = {
    "stale": (lambda _clock: StaleHints(), a_removed_run_is_not_named),
    "foreign": (lambda _clock: ForeignHints(), only_asked_tenants_are_named),
    "invented": (lambda _clock: InventedHints(random.Random(1)), only_what_was_added_is_named),
    "failing": (lambda _clock: FailingHints(), an_empty_index_names_nothing),
    "of no use": (lambda _clock: NullHints(), OF_USE[0]),
}


@pytest.mark.parametrize(("make", "check"), LIARS.values(), ids=LIARS.keys())
async def test_an_index_that_does_not_keep_it_is_caught(make: Make, check: Check) -> None:
    clock = ManualClock(NOW)
    with pytest.raises((AssertionError, ConnectionError)):
        await check(make(clock), clock)
