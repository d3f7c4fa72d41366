"""What an endpoint does is drawn from run and attempt alone: it can be worked out again, attempt by attempt."""

import random
import zlib
from uuid import UUID

import pytest

from bench.ledger import percentile
from bench.manners import Answer, Ending, Manner, manner_of, possible_ends

RUNS = [str(UUID(int=random.Random(1).getrandbits(128) + n)).encode() for n in range(4_000)]


def test_a_fixed_time_and_a_range() -> None:
    assert manner_of(b"150ms").answer(RUNS[0], b"1") == (0.15, Ending.OK)
    seconds = sorted(manner_of(b"10000-30000ms").answer(run, b"1")[0] for run in RUNS)
    assert 10 <= seconds[0] < 10.1
    assert 29.9 < seconds[-1] < 30
    assert percentile(seconds, 0.5) == pytest.approx(20, abs=0.7)


def test_the_tail_is_long() -> None:
    seconds = sorted(manner_of(b"tail").answer(run, b"1")[0] for run in RUNS)
    assert percentile(seconds, 0.5) == pytest.approx(0.15, abs=0.01)
    assert percentile(seconds, 0.99) == pytest.approx(0.48, abs=0.06)


def test_three_in_ten_calls_of_a_flaky_endpoint_fail() -> None:
    failed = sum(manner_of(b"flaky").answer(run, b"1")[1] is Ending.UNAVAILABLE for run in RUNS)
    assert failed / len(RUNS) == pytest.approx(0.3, abs=0.03)


def test_what_says_nothing_is_answered_at_once() -> None:
    for segment in (b"", b"7", b"0ms", b"tailor", b"ms", b"-5ms"):
        assert manner_of(segment).answer(RUNS[0], b"1") == (0.0, Ending.OK)
    assert manner_of(b"reset").answer(RUNS[0], b"1")[1] is Ending.RESET
    assert manner_of(b"hang").answer(RUNS[0], b"1")[1] is Ending.NEVER


def late(manner: Manner, run: bytes, attempt: bytes) -> bool:
    return manner.answer(run, attempt)[0] > 20


class Linear(Manner):
    """Draws by a checksum, of which the attempts of one run are a constant apart."""

    def answer(self, run_id: bytes, attempt: bytes) -> Answer:
        return 10 + 20 * zlib.crc32(run_id + b" " + attempt) / 2**32, Ending.OK


def all_late(manner: Manner) -> float:
    return sum(all(late(manner, run, attempt) for attempt in (b"1", b"2", b"3")) for run in RUNS) / len(RUNS)


def test_the_attempts_of_a_run_are_independent() -> None:
    assert all_late(manner_of(b"10000-30000ms")) == pytest.approx(1 / 8, abs=0.02)
    assert all_late(Linear(10, 30)) != pytest.approx(1 / 8, abs=0.02)


def ends(*answers: Answer, timeout: float = 30.0, slack: float = 1.0) -> frozenset[str]:
    return possible_ends(lambda attempt: answers[attempt - 1], len(answers), timeout, slack)


def test_how_a_run_must_end() -> None:
    ok, down, slow, near = (0.1, Ending.OK), (0.1, Ending.UNAVAILABLE), (40.0, Ending.OK), (29.5, Ending.OK)
    assert ends(ok) == {"succeeded"}
    assert ends(down, slow, ok) == {"succeeded"}
    assert ends(down, slow, down) == {"dead"}
    assert ends((0.0, Ending.RESET)) == ends((0.0, Ending.NEVER)) == {"dead"}
    assert ends(near, ok) == {"succeeded"}
    assert ends(near, down) == {"succeeded", "dead"}
