"""The choice: order, caps, fairness, the bound of what waits, and a cost that no backlog changes."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choose_model import Choosing, TenantModel, a_row, always, pick, tenants_of
from tocsin.common.store.rows import Pending
from tocsin.engine.choose import ANY_PRIORITY, Candidate, Chosen, choose


def numbers(chosen: Chosen) -> list[int]:
    return [row.run_id.int for row in chosen.rows]


def test_the_most_urgent_first_and_of_one_priority_the_longest_due() -> None:
    rows = [a_row(1, 3, 0, 1), a_row(1, 0, 9, 2), a_row(1, 2, 1, 3), a_row(1, 0, 5, 4), a_row(1, 1, 7, 5)]
    assert numbers(pick(tenants_of(*rows), 10)) == [4, 2, 5, 3, 1]


def test_of_one_priority_the_tenant_that_has_used_least() -> None:
    busy, idle = tenants_of(a_row(1, 2, 0, 1), a_row(1, 2, 0, 2), a_row(2, 2, 5, 3), a_row(2, 2, 6, 4))
    busy.usage = 1.5
    assert numbers(pick([busy, idle], 10)) == [3, 4, 1, 2]


def test_priority_comes_before_usage() -> None:
    busy, idle = tenants_of(a_row(1, 0, 5, 1), a_row(2, 1, 0, 2))
    busy.usage = 100.0
    assert numbers(pick([busy, idle], 1)) == [1]


def test_tenants_share_by_weight() -> None:
    """Usage and cost are over the weight: one of weight 3 gets three picks for one of weight 1."""
    heavy, light = tenants_of(*(a_row(t, 2, n, t * 1000 + n) for t in (1, 2) for n in range(200)))
    heavy.cost, light.cost = 1 / 3, 1.0
    taken = Counter(row.tenant_id.int for row in pick([heavy, light], 100).rows)
    assert taken[1] == pytest.approx(75, abs=3)


def test_a_tenant_gets_no_more_than_its_room() -> None:
    small, large = tenants_of(*(a_row(t, 2, n, t * 1000 + n) for t in (1, 2) for n in range(50)))
    small.room = 3
    taken = Counter(row.tenant_id.int for row in pick([small, large], 100).rows)
    assert taken == {1: 3, 2: 50}


def test_a_row_without_room_at_its_endpoint_is_passed_over_and_its_queue_goes_on() -> None:
    (tenant,) = tenants_of(*(a_row(1, 2, n, n, task=n % 2) for n in range(10)))
    left = Counter({0: 2, 1: 10})

    def take(row: Pending) -> bool:
        left[row.task_id.int] -= 1
        return left[row.task_id.int] >= 0

    assert numbers(pick([tenant], 10, endpoint=take)) == [0, 1, 2, 3, 5, 7, 9]


def test_picks_are_counted_on_and_those_passed_over_do_not_count() -> None:
    (tenant,) = tenants_of(*(a_row(1, 2, n, n) for n in range(10)))
    assert pick([tenant], 4, picks=7).picks == 11
    assert pick([tenant], 4, picks=11, endpoint=lambda row: row.run_id.int == 9).picks == 12


def test_nothing_to_choose() -> None:
    assert choose([], 10, 3, always) == Chosen([], 3)
    assert choose([TenantModel(1, {2: []}).candidate()], 10, 3, always) == Chosen([], 3)


# --- against a naive chooser ----------------------------------------------------------------------------------------


def naive(candidates: Iterable[Candidate], limit: int, picks: int, take: Callable[[Pending], bool]) -> Chosen:
    """The documented rule, word for word, over all queues at every pick."""
    queues = [(c, list(rows)) for c in candidates for rows in c.queues.values()]
    queues = [(c, rows) for c, rows in queues if rows]
    chosen: list[Pending] = []
    while len(chosen) < limit:
        patient = (picks + 1) % ANY_PRIORITY == 0
        open_ = [(i, c, rows) for i, (c, rows) in enumerate(queues) if rows and c.room > 0]
        if not open_:
            break

        def key(
            entry: tuple[int, Candidate, list[Pending]], patient: bool = patient
        ) -> tuple[int, float, datetime, int]:
            number, candidate, rows = entry
            first = candidate.last_patient if patient else int(rows[0].priority)
            return first, candidate.usage, rows[0].due_at, number

        _, candidate, rows = min(open_, key=key)
        row = rows.pop(0)
        if not take(row):
            continue
        picks += 1
        chosen.append(row)
        candidate.room -= 1
        candidate.usage += candidate.cost
        if patient:
            candidate.last_patient = picks
    return Chosen(chosen, picks)


ROWS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 20), st.integers(0, 3)), min_size=1, max_size=80
)


@settings(max_examples=150)
@given(
    rows=ROWS,
    limit=st.integers(0, 90),
    picks=st.integers(0, 200),
    seed=st.integers(0, 2**32),
    endpoint_cap=st.integers(0, 30),
)
def test_it_chooses_as_the_naive_chooser_does(
    rows: list[tuple[int, int, int, int]], limit: int, picks: int, seed: int, endpoint_cap: int
) -> None:
    rng = random.Random(seed)
    tenants = tenants_of(*(a_row(t, p, s, n, task) for n, (t, p, s, task) in enumerate(rows)))
    for tenant in tenants:
        tenant.usage, tenant.cost = rng.choice([0.0, 1.0, 2.5]), rng.choice([0.001, 0.5, 1.0])
        tenant.room, tenant.last_patient = rng.randint(0, 40), rng.randint(0, picks)

    def caps() -> Callable[[Pending], bool]:
        used: Counter[int] = Counter()

        def take(row: Pending) -> bool:
            if used[row.task_id.int] >= endpoint_cap:
                return False
            used[row.task_id.int] += 1
            return True

        return take

    ours, theirs = [t.candidate() for t in tenants], [t.candidate() for t in tenants]
    chosen = choose(ours, limit, picks, caps())
    assert chosen == naive(theirs, limit, picks, caps())
    assert [(c.usage, c.room, c.last_patient) for c in ours] == [(c.usage, c.room, c.last_patient) for c in theirs]
    assert all(candidate.room >= 0 for candidate in ours)


# --- cost -----------------------------------------------------------------------------------------------------------


class CountingRows:
    """A queue's rows, and how many of them were looked at."""

    def __init__(self, rows: Iterable[Pending]) -> None:
        self._rows = iter(rows)
        self.steps = 0

    def __iter__(self) -> "CountingRows":
        return self

    def __next__(self) -> Pending:
        self.steps += 1
        return next(self._rows)


def steps(choosing: Choosing, backlog: int, limit: int) -> int:
    queues = {
        (tenant, priority): CountingRows(
            a_row(tenant, priority, n, tenant * 10**6 + priority * 10**5 + n) for n in range(backlog)
        )
        for tenant in range(1, 6)
        for priority in range(4)
    }
    candidates = [Candidate(UUID(int=t), 0.0, 1.0, 100, 0, {p: queues[t, p] for p in range(4)}) for t in range(1, 6)]
    assert len(choosing(candidates, limit, 0, always).rows) == limit
    return sum(queue.steps for queue in queues.values())


def test_no_backlog_is_walked() -> None:
    assert steps(choose, 1_000, 50) == steps(choose, 10_000, 50) <= 50 + 20
    assert steps(naive, 10_000, 50) > 100_000  # broken: looks at all there is


# --- the cap's broken twin ------------------------------------------------------------------------------------------


def exceeds_room(choosing: Choosing) -> bool:
    tenants = tenants_of(*(a_row(t, 2, n, t * 1000 + n) for t in (1, 2) for n in range(30)))
    for tenant in tenants:
        tenant.room = 4
    chosen = choosing([tenant.candidate() for tenant in tenants], 60, 0, always)
    return any(count > 4 for count in Counter(row.tenant_id for row in chosen.rows).values())


def without_caps(candidates: Iterable[Candidate], limit: int, picks: int, take: Callable[[Pending], bool]) -> Chosen:
    """Broken: room is not looked at."""
    return choose([replace(candidate, room=10**9) for candidate in candidates], limit, picks, take)


def test_the_cap_and_a_choice_without_it() -> None:
    assert not exceeds_room(choose)
    assert exceeds_room(without_caps)
