"""What one attempt's end means for its run. Values in, a value out.

| end of the attempt | becomes |
|---|---|
| 2xx | succeeded |
| 410 | dead: the endpoint says that it is gone |
| any other answer with `Tocsin-No-Retry: true` | dead |
| 3xx (never followed), other 4xx, 5xx, every failure | due again, till `max_attempts` or `deadline` ends it |
| cancelled | cancelled |

The wait before the next attempt is the task's back-off, or, on 429 and 503, exactly what a usable
`Retry-After` asks, or none where an old connection was at fault (`Failure.reused`). It never reaches
past the deadline: the back-off is drawn from what is left, and a `Retry-After` beyond it ends the run.
"""

import random
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from tocsin.common import backoff
from tocsin.common.models import RetrySpec
from tocsin.common.states import RunState
from tocsin.common.store.rows import Outcome
from tocsin.executor.retry_after import retry_after
from tocsin.executor.transport.port import Failure, Response

NO_RETRY_HEADER: Final = "tocsin-no-retry"

_GONE = 410
_ASKS_TO_WAIT = frozenset({429, 503})


class EndReason(StrEnum):
    """Why a run was not tried again."""

    GONE = "gone"
    NO_RETRY = "no_retry"
    MAX_ATTEMPTS = "max_attempts"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`state` None: due again in `retry_in` seconds. `error` is one line for the history."""

    outcome: Outcome
    state: RunState | None
    retry_in: float | None = None
    reason: EndReason | None = None
    error: str | None = None


_SUCCEEDED: Final = Verdict(Outcome.SUCCESS, RunState.SUCCEEDED)


def classify(
    result: Response | Failure,
    retry: RetrySpec,
    *,
    attempt: int,
    now: datetime,
    first_due: datetime,
    rng: random.Random,
) -> Verdict:
    """The verdict on attempt number `attempt` (1 or more) that ended at `now`.

    `first_due` is the instant at which the run was first due; the deadline counts from it.
    """
    if isinstance(result, Response) and 200 <= result.status <= 299:
        return _SUCCEEDED
    elapsed = (now - first_due).total_seconds()
    if isinstance(result, Failure):
        if result.outcome is Outcome.CANCELLED:
            return Verdict(Outcome.CANCELLED, RunState.CANCELLED, error=result.error)
        failed = Verdict(result.outcome, None, error=result.error)
        return _again(failed, retry, attempt, elapsed=elapsed, asked=0.0 if result.reused else None, rng=rng)
    error = f"the endpoint answered {result.status}"
    if 300 <= result.status <= 399:
        error += "; redirects are not followed"
    if result.status == _GONE:
        return Verdict(Outcome.HTTP_ERROR, RunState.DEAD, reason=EndReason.GONE, error=error)
    if any(value.lower() == "true" for value in result.values(NO_RETRY_HEADER)):
        return Verdict(Outcome.HTTP_ERROR, RunState.DEAD, reason=EndReason.NO_RETRY, error=error)
    asked = retry_after(result.values("retry-after"), now) if result.status in _ASKS_TO_WAIT else None
    failed = Verdict(Outcome.HTTP_ERROR, None, error=error)
    return _again(failed, retry, attempt, elapsed=elapsed, asked=asked, rng=rng)


def _again(
    failed: Verdict,
    retry: RetrySpec,
    attempt: int,
    *,
    elapsed: float,
    asked: float | None,
    rng: random.Random,
) -> Verdict:
    if attempt >= retry.max_attempts:
        return replace(failed, state=RunState.DEAD, reason=EndReason.MAX_ATTEMPTS)
    cap = retry.cap_seconds
    if retry.deadline_seconds is not None:
        left = retry.deadline_seconds - elapsed
        if left <= 0 or (asked is not None and asked >= left):
            return replace(failed, state=RunState.DEAD, reason=EndReason.DEADLINE)
        cap = min(cap, left)
    if asked is not None:
        return replace(failed, retry_in=asked)
    wait = backoff.delay(attempt, rng, base=retry.base_seconds, factor=retry.factor, cap=cap)
    return replace(failed, retry_in=wait)
