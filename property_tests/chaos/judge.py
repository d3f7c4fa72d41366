"""The verdict: the two ledgers held against each other and against what was due, promise by promise.

Values in, values out; nothing here looks at a clock, a process or a database. The numbers are those of the promises
in the design: 1 no loss, 2 one run per slot, 3 bounded duplicates, 4 fenced, 5 terminal is final, 6 trust window,
7 an outage is not a dead executor, 8 time, 10 isolation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from property_tests.chaos.books import Books, Finding
from property_tests.chaos.judge_calls import bounded_duplicates, fenced, terminal_is_final
from property_tests.chaos.judge_enough import enough
from property_tests.chaos.judge_limits import (
    deadlines_kept,
    isolated,
    never_early,
    on_time_in_calm,
    outage_is_no_death,
    trust_window,
)
from property_tests.chaos.judge_slots import no_loss, one_run_per_slot
from property_tests.chaos.ledger import Evidence


@dataclass(frozen=True, slots=True)
class Verdict:
    findings: Sequence[Finding]
    books: Books

    @property
    def held(self) -> bool:
        return all(finding.held for finding in self.findings)

    def of_promise(self, number: int) -> list[Finding]:
        return [finding for finding in self.findings if finding.promise == number]


def judge(evidence: Evidence) -> Verdict:
    """Every finding, those that hold among them."""
    books = Books.of(evidence)
    findings = [
        *no_loss(books),
        *one_run_per_slot(books),
        *bounded_duplicates(books),
        *fenced(books),
        *terminal_is_final(books),
        *trust_window(books),
        *outage_is_no_death(books),
        *never_early(books),
        *deadlines_kept(books),
        *on_time_in_calm(books),
        *isolated(books),
        *enough(books),
    ]
    return Verdict(findings, books)
