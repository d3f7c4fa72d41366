"""Broken twins in SQL: a statement as it is shipped, but for one condition, which the lifecycle machine must miss."""

from collections.abc import Callable, Sequence

import pytest

from property_tests.lifecycle import PostgresLifecycleMachine
from property_tests.machine import Profile
from property_tests.mutant import Mutant
from tocsin.common.store.postgres import database, queries

FEW = Profile(25, 8)
"""A world on PostgreSQL takes its time; what it opens with is what it finds these by."""

OF_A_FENCE = (
    ("on a.run_id = l.run_id and a.fence = l.fence))", "on a.run_id = l.run_id))"),
    (
        "from gone g join asked a on a.run_id = g.run_id and a.fence = g.fence",
        "from gone g join asked a using (run_id)",
    ),
    ("where d.run_id = a.run_id and d.fence = a.fence)", "where d.run_id = a.run_id)"),
)
OF_A_LEASE = (
    ("from running where lease_id = $20 and run_id = any ($1)", "from running where run_id = any ($1)"),
    ("where lease_id = $20\n       and run_id", "where run_id"),
)


def without(statement: str, *changes: tuple[str, str]) -> Callable[[pytest.MonkeyPatch], None]:
    """Takes parts out of a statement's text.

    Raises:
        AssertionError: a part is not in it any more.
    """

    def apply(patch: pytest.MonkeyPatch) -> None:
        real = queries.query
        text = real(statement)
        for old, new in changes:
            assert old in text, f"{statement}.sql reads otherwise by now: {old}"
            text = text.replace(old, new)
        patch.setattr(database, "query", lambda name: text if name == statement else real(name))

    return apply


completion_without_fence = without("complete", *OF_A_FENCE)
completion_of_any_lease = without("complete", *OF_A_FENCE, *OF_A_LEASE)
begin_of_an_ended_lease = without(
    "begin",
    (
        "where exists (select from leases l where l.id = $1 and l.expired_at is null)\n       and not exists",
        "where not exists",
    ),
)
give_back_of_all = without(
    "give_back", ("select l.id, l.expired_at is not null from leases l", "select l.id, true from leases l")
)
judge_who_was_away = without("lease_judge", ("       and clock_timestamp() - me.steady_since >= l.ttl\n", ""))

MUTANTS: Sequence[Mutant] = (
    Mutant("a completion has no fence", 4, PostgresLifecycleMachine, completion_without_fence, FEW, seed=6),
    Mutant("a completion is taken from any lease", 4, PostgresLifecycleMachine, completion_of_any_lease, FEW, seed=2),
    Mutant("a begin does not ask for its lease", 3, PostgresLifecycleMachine, begin_of_an_ended_lease, FEW, seed=3),
    Mutant("a giving back takes what lives", 3, PostgresLifecycleMachine, give_back_of_all, FEW),
    Mutant("a judge may have been away", 7, PostgresLifecycleMachine, judge_who_was_away, FEW, seed=4),
)
