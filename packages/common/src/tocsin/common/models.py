"""What a tenant defines: the schedule and its policies (what the plan reads), and the call.

These models are the one place for the rules of their fields: the API builds its requests from
them, and a stored definition is read back through them, so that a row put in by hand is refused
at the same rule as a request.
"""

from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from tocsin.common.target import Target, check_headers, check_url, parse_target
from tocsin.common.time.cron import check_cron
from tocsin.common.time.zones import check_zone

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
"""Instants of a schedule lie in [EARLIEST, LATEST): sums stay far from what a datetime cannot hold."""


class Priority(IntEnum):
    """Lowest number first."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3


class Kind(StrEnum):
    """Why a run exists. `next` stands for a task's next slot; all others are waiting runs.

    `forced` is a run-now that was told to start whatever else of its task is running.
    """

    NEXT = "next"
    SLOT = "slot"
    NOW = "now"
    BACKFILL = "backfill"
    CATCHUP = "catchup"
    REDRIVE = "redrive"
    FORCED = "forced"


class TaskState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    FAULTY = "faulty"
    DELETED = "deleted"


class Misfire(StrEnum):
    """What becomes of slots that are later than the grace when they could first run."""

    SKIP = "skip"
    FIRE_ONCE = "fire_once"
    FIRE_ALL = "fire_all"


class Overlap(StrEnum):
    """What becomes of a slot that is due while an earlier run of its task has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    CANCEL_PREVIOUS = "cancel_previous"


class DstGap(StrEnum):
    """A fixed local time that a day does not have: run at the first instant after the gap, or not at all."""

    SHIFT = "shift"
    SKIP = "skip"


class DstFold(StrEnum):
    """A fixed local time that a day has twice."""

    FIRST = "first"
    LAST = "last"
    BOTH = "both"


class OnLeaseLost(StrEnum):
    """What becomes of a run whose executor died, and which was perhaps called."""

    RETRY = "retry"
    DEAD = "dead"


def _instant(value: datetime) -> datetime:
    if not EARLIEST <= value < LATEST:  # before the conversion, which cannot hold every instant of another zone
        raise ValueError("must lie between 1970 and 2200")
    return value.astimezone(UTC)


def _whole_second(value: datetime) -> datetime:
    if value.microsecond:
        raise ValueError("must be a whole second")
    return value


Instant = Annotated[AwareDatetime, AfterValidator(_instant)]
Slot = Annotated[AwareDatetime, AfterValidator(_instant), AfterValidator(_whole_second)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)


class CronSchedule(_Frozen):
    """Five fields, or six with seconds first, in an IANA zone."""

    kind: Literal["cron"] = "cron"
    cron: Annotated[str, AfterValidator(check_cron)]
    zone: Annotated[str, AfterValidator(check_zone)] = "UTC"


class EverySchedule(_Frozen):
    """`anchor + n * every_seconds`, in elapsed time: no edit, late run or zone moves the phase."""

    kind: Literal["every"] = "every"
    every_seconds: Annotated[int, Field(strict=True, ge=1, le=10 * 366 * 86_400)]
    anchor: Slot


class AtSchedule(_Frozen):
    """One instant."""

    kind: Literal["at"] = "at"
    at: Slot


Schedule = Annotated[CronSchedule | EverySchedule | AtSchedule, Field(discriminator="kind")]


class PlanSpec(_Frozen):
    """Everything that decides which slots a task has and what becomes of late ones.

    A change of anything here raises the task's `plan_version` and replaces its next row.
    """

    schedule: Schedule
    start: Instant | None = None
    end: Instant | None = None
    spread_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] = 0
    dst_gap: DstGap = DstGap.SHIFT
    dst_fold: DstFold = DstFold.FIRST
    misfire: Misfire = Misfire.FIRE_ONCE
    grace_seconds: Annotated[int, Field(strict=True, ge=1, le=30 * 86_400)] = 60
    max_catchup: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 100
    overlap: Overlap = Overlap.ALLOW
    priority: Priority = Priority.NORMAL

    @model_validator(mode="after")
    def _ends_after_start(self) -> Self:
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError("end must be later than start")
        return self


class RetrySpec(_Frozen):
    """Exponential back-off with full jitter; attempts end at `max_attempts` or `deadline_seconds` after the
    first due instant, whichever comes first."""

    max_attempts: Annotated[int, Field(strict=True, ge=1, le=100)] = 3
    base_seconds: Annotated[float, Field(strict=True, ge=0, le=86_400, allow_inf_nan=False)] = 5.0
    factor: Annotated[float, Field(strict=True, ge=1, le=100, allow_inf_nan=False)] = 2.0
    cap_seconds: Annotated[float, Field(strict=True, gt=0, le=86_400, allow_inf_nan=False)] = 3_600.0
    deadline_seconds: Annotated[int, Field(strict=True, ge=1, le=30 * 86_400)] | None = None


class Method(StrEnum):
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"
    GET = "GET"
    HEAD = "HEAD"


class CallSpec(_Frozen):
    """The HTTP request that a run makes, but for its body, and how its answers are taken.

    `json_body`: the body was given as a JSON value, and is shown as one.
    """

    url: Annotated[str, AfterValidator(check_url)]
    method: Method = Method.POST
    headers: Annotated[dict[str, str], AfterValidator(check_headers)] = Field(default_factory=dict)
    timeout_seconds: Annotated[float, Field(strict=True, ge=0.1, le=900, allow_inf_nan=False)] = 30.0
    retry: RetrySpec = RetrySpec()
    on_lease_lost: OnLeaseLost = OnLeaseLost.RETRY
    json_body: Annotated[bool, Field(strict=True)] = False

    @cached_property
    def target(self) -> Target:
        """Where the call goes. Kept here, and not in a cache of URLs: a peak has more of them than a cache would hold.

        Raises:
            ValueError: the URL was stored past its rules.
        """
        return parse_target(self.url)

    @cached_property
    def endpoint(self) -> str:
        """Host and port: what a cap per endpoint counts."""
        return f"{self.target.host}:{self.target.port}"
