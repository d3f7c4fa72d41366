"""The choice: order, caps, fairness, the bound of what waits, and a cost that no backlog changes."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.common.models import Kind, Priority
from tocsin.common.store.rows import Pending
from tocsin.engine import choose as module
from tocsin.engine.choose import ANY_PRIORITY, Candidate, Chosen, choose

NOW = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)

Choosing = Callable[[Iterable[Candidate], int, int, Callable[[Pending], bool]], Chosen]


def a_row(tenant: int, priority: int, seconds: float, number: int, task: int = 0) -> Pending:
    return Pending(
        run_id=UUID(int=number),
        fence=0,
        tenant_id=UUID(int=tenant),
        task_id=UUID(int=task),
        priority=Priority(priority),
        due_at=NOW + timedelta(seconds=seconds),
        slot=None,
        last_slot=None,
        lane=0,
        kind=Kind.NOW,
        plan_version=1,
    )


def always(_row: Pending) -> bool:
    return True


@dataclass
class TenantModel:
    """What a board would hold of a tenant: rows by priority, in due order."""

    number: int
    rows: dict[int, list[Pending]]
    usage: float = 0.0
    cost: float = 1.0
    room: int = 10**9
    last_patient: int = 0
    took: list[Pending] = field(default_factory=list)

    def candidate(self) -> Candidate:
        queues = {priority: iter(rows) for priority, rows in self.rows.items() if rows}
        return Candidate(UUID(int=self.number), self.usage, self.cost, self.room, self.last_patient, queues)

    def absorb(self, candidate: Candidate, chosen: list[Pending]) -> None:
        mine = [row for row in chosen if row.tenant_id == UUID(int=self.number)]
        taken = {row.run_id for row in mine}
        self.rows = {priority: [r for r in rows if r.run_id not in taken] for priority, rows in self.rows.items()}
        self.usage, self.last_patient, self.room = candidate.usage, candidate.last_patient, candidate.room
        self.took += mine


def tenants_of(*rows: Pending) -> list[TenantModel]:
    made: dict[int, TenantModel] = {}
    for row in sorted(rows, key=lambda row: (row.due_at, row.run_id)):
        number = row.tenant_id.int
        tenant = made.setdefault(number, TenantModel(number, {}))
        tenant.rows.setdefault(int(row.priority), []).append(row)
    return list(made.values())


def pick(
    tenants: list[TenantModel], limit: int, picks: int = 0, endpoint: Callable[[Pending], bool] = always
) -> Chosen:
    candidates = [tenant.candidate() for tenant in tenants]
    chosen = choose(candidates, limit, picks, endpoint)
    for tenant, candidate in zip(tenants, candidates, strict=True):
        tenant.absorb(candidate, chosen.rows)
    return chosen


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


# --- what has waited moves up ---------------------------------------------------------------------------------------


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
