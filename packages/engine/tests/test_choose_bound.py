"""The choice: what has waited moves up, within a bound that the module states."""

import itertools
from bisect import insort
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choose_model import NOW, TenantModel, a_row, always, pick, tenants_of
from tocsin.common.store.rows import Pending
from tocsin.engine import choose as module
from tocsin.engine.choose import ANY_PRIORITY, Candidate, choose


def endless(tenant: int, priority: int, start: float = 1.0) -> Iterator[Pending]:
    """A queue that always has more, each due after the low one."""
    for number in itertools.count():
        yield a_row(tenant, priority, start + number, tenant * 10**6 + number)


def picks_until_low(tenants: int, holder: int, per_call: int, *, remember: bool = True) -> int:
    """Picks until the one low run of tenant `holder` is begun, while every tenant always has critical runs due.

    `remember` False: a broken board that does not keep when a tenant last had a pick without priority.
    """
    low = a_row(holder, 3, 0, 1)
    streams = {t: endless(t, 0) for t in range(1, tenants + 1)}
    usage, patient = dict.fromkeys(streams, 0.0), dict.fromkeys(streams, 0)
    picks = 0
    while picks < 200 * ANY_PRIORITY:
        candidates = [
            Candidate(
                UUID(int=t), usage[t], 1.0, 10**9, patient[t], {0: rows, **({3: iter([low])} if t == holder else {})}
            )
            for t, rows in streams.items()
        ]
        chosen = choose(candidates, per_call, picks, always)
        for candidate in candidates:
            usage[candidate.tenant_id.int] = candidate.usage
            patient[candidate.tenant_id.int] = candidate.last_patient if remember else 0
        if low in chosen.rows:
            return picks + chosen.rows.index(low) + 1
        picks = chosen.picks
    return picks


@pytest.mark.parametrize("per_call", [1, 7, 1000])
@pytest.mark.parametrize(("tenants", "holder"), [(1, 1), (2, 1), (2, 2), (3, 3), (7, 1), (20, 1), (20, 20), (21, 5)])
def test_b42_the_longest_due_run_waits_a_documented_number_of_picks_whatever_its_priority(
    tenants: int, holder: int, per_call: int
) -> None:
    assert picks_until_low(tenants, holder, per_call) <= ANY_PRIORITY * tenants


def test_b42_the_bound_catches_a_choice_where_priority_always_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANY_PRIORITY", 10**9)
    assert picks_until_low(3, 3, 7) > ANY_PRIORITY * 3


def test_b42_the_bound_catches_a_choice_that_forgets_whose_turn_it_was() -> None:
    """Two tenants in turns, and each twentieth pick is always the second one's."""
    assert picks_until_low(2, 1, 1, remember=False) > ANY_PRIORITY * 2


def test_b42_one_slot_and_a_stream_at_more_than_its_capacity() -> None:
    """A second a call, 1.2 critical runs due a second, one low run: it goes before what became due after it."""
    critical = [a_row(1, 0, n / 1.2, n) for n in range(400)]
    low = a_row(1, 3, 100, 1000)
    (tenant,) = tenants_of(*critical, low)
    picks = 0
    for second in range(300):
        until = NOW + timedelta(seconds=second)
        due = {p: [row for row in rows if row.due_at <= until] for p, rows in tenant.rows.items()}
        candidate = replace(tenant, rows=due).candidate()
        chosen = choose([candidate], 1, picks, always)
        picks = chosen.picks
        tenant.absorb(candidate, chosen.rows)
        if low in chosen.rows:
            break
    started = len(tenant.took)
    due_before = sum(row.due_at < low.due_at for row in critical)
    assert started <= due_before + ANY_PRIORITY + 1


# --- the bound, as stated -------------------------------------------------------------------------------------------

SMALL = 4
"""`ANY_PRIORITY` while the bound is looked for, so that few picks show much."""

ARRIVALS = st.lists(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(-3, 0)), max_size=6),
    min_size=1,
    max_size=12,
)
"""By round: (tenant, priority, seconds from now) of the runs that become due in it, some late."""


def picks_against_bound(
    arrivals: list[list[tuple[int, int, int]]],
    limits: list[int],
    usage: list[float],
    holder: int,
    position: int,
    *,
    remember: bool = True,
) -> tuple[int, int]:
    """How many picks the run takes that becomes due in round 3 as the last of `holder`'s, and its bound.

    After the last arrivals, the rounds go on with endless critical runs of every tenant.
    """
    tenants: dict[int, TenantModel] = {}
    streams = {t: endless(t, 0, start=1000) for t in range(1, 6)}
    numbers = itertools.count(1)
    watched: Pending | None = None
    picks = since = 0
    seen: set[int] = set()
    before: set[UUID] = set()
    for turn in itertools.count():
        for tenant, priority, late in arrivals[turn] if turn < len(arrivals) else []:
            add(tenants, a_row(tenant, priority, turn + late, next(numbers)), usage)
        if turn == min(3, len(arrivals)):
            watched = a_row(holder, position, turn, next(numbers))
            add(tenants, watched, usage)
            since = picks
        if watched is not None:
            mine = [row for rows in tenants[holder].rows.values() for row in rows]
            before |= {row.run_id for row in mine if row.due_at <= watched.due_at} - {watched.run_id}
        if turn >= len(arrivals):
            for tenant in tenants:
                for row in itertools.islice(streams[tenant], 2 * limits[turn % len(limits)]):
                    add(tenants, row, usage)
        seen |= {number for number, model in tenants.items() if watched is not None and any(model.rows.values())}
        chosen = pick(list(tenants.values()), limits[turn % len(limits)], picks)
        if not remember:
            for model in tenants.values():
                model.last_patient = 0
        if watched in chosen.rows:
            assert watched is not None
            return picks + chosen.rows.index(watched) + 1 - since, SMALL * len(seen) * (len(before) + 1)
        picks = chosen.picks
        if watched is not None and picks - since > SMALL * 5 * (len(before) + 2):
            return picks - since, SMALL * len(seen) * (len(before) + 1)
    raise AssertionError("rounds never end")


def add(tenants: dict[int, TenantModel], row: Pending, usage: list[float]) -> None:
    number = row.tenant_id.int
    model = tenants.setdefault(number, TenantModel(number, {}, usage=usage[number - 1]))
    insort(model.rows.setdefault(int(row.priority), []), row, key=lambda row: (row.due_at, row.run_id))


BOUND_CASES = {
    "arrivals": ARRIVALS,
    "limits": st.lists(st.integers(1, 5), min_size=1, max_size=3),
    "usage": st.lists(st.sampled_from([0.0, 1.0, 50.0]), min_size=5, max_size=5),
    "holder": st.integers(1, 5),
    "position": st.integers(0, 3),
}


def check_bound(**case: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ANY_PRIORITY", SMALL)
        picks, bound = picks_against_bound(**case)
    assert picks <= bound


@settings(max_examples=80, deadline=None)
@given(**BOUND_CASES)
def test_b42_any_due_run_is_begun_within_the_stated_bound(**case: Any) -> None:
    check_bound(**case)


STREAM: dict[str, Any] = {
    "arrivals": [[(1, 0, 0), (2, 0, 0)] * 3] * 12,
    "limits": [1],
    "usage": [0.0, 0.0, 0.0, 0.0, 0.0],
    "position": 3,
}
"""Critical runs of two tenants, more than are picked; one low run among them."""


def test_b42_the_stated_bound_catches_turns_that_are_forgotten() -> None:
    check_bound(**STREAM, holder=1)
    with pytest.raises(AssertionError):
        check_bound(**STREAM, holder=1, remember=False)


def test_b42_the_stated_bound_catches_a_choice_where_priority_always_counts() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ANY_PRIORITY", 10**9)
        picks, bound = picks_against_bound(**STREAM, holder=2)
    assert picks > bound
