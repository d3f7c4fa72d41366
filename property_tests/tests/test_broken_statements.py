"""A broken twin in SQL is broken in one statement; and it is told when that has changed."""

from collections.abc import Callable

import pytest

from property_tests.mutant import Mutant
from property_tests.mutants.statements import MUTANTS, without
from tocsin.common.store.postgres import database, queries

NAMES = ("begin", "complete", "give_back", "put_back", "lease_judge")


def changed() -> list[str]:
    """The statements that PostgreSQL would be sent otherwise than as they are shipped."""
    sent: Callable[[str], str] = vars(database)["query"]
    return [name for name in NAMES if sent(name) != queries.query(name)]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_one_statement_reads_otherwise(mutant: Mutant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        assert len(changed()) == 1
    assert not changed()


def test_a_statement_that_has_changed_is_noticed() -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError, match="reads otherwise by now"):
        without("begin", ("what no statement says", ""))(patch)
