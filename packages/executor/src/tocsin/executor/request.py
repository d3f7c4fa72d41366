"""From a begun run to the request that goes out."""

import random
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from tocsin.common.ids import planted_at
from tocsin.common.models import CallSpec
from tocsin.common.store.rows import Begun, Task
from tocsin.common.target import Target, parse_target
from tocsin.executor.signature import Signer
from tocsin.executor.transport.port import Headers, OutgoingRequest

USER_AGENT: Final = "Tocsin/0.1"

_DEFAULTS: Final = (
    ("User-Agent", USER_AGENT),
    ("Accept", "*/*"),
    ("Accept-Encoding", "identity"),  # the answer is kept as it comes
)


class Template:
    """What every request of one definition shares.

    A task's own header wins over a default; names that Tocsin sets cannot be a task's own.

    Raises:
        ValueError: the stored call breaks a rule that it passed when it was stored.
    """

    __slots__ = ("_body", "_deadline", "_method", "_own", "_target", "_task")

    def __init__(self, task_id: UUID, call: CallSpec, body: bytes | None) -> None:
        self._target = parse_target(call.url)
        self._method = call.method.value
        self._body = body or b""
        self._own = _own(call.headers, self._body)
        self._task = ("Tocsin-Task", str(task_id))
        self._deadline = call.timeout_seconds

    @property
    def target(self) -> Target:
        return self._target

    def build(self, run: Begun, signer: Signer, *, now: datetime, rng: random.Random) -> OutgoingRequest:
        """The request of one attempt. `now` is wall time, for the signature; `rng` makes the trace."""
        run_id = str(run.run_id)
        return OutgoingRequest(
            self._target,
            self._method,
            (
                *self._own,
                ("Idempotency-Key", run_id),
                ("Tocsin-Attempt", str(run.attempt)),
                ("Tocsin-Fence", str(run.fence)),
                # a run-now has no slot: what it was asked for at, the same on every attempt
                ("Tocsin-Scheduled-For", rfc3339(run.slot or planted_at(run.run_id))),
                self._task,
                ("traceparent", traceparent(rng)),
                *signer.headers(run_id, now, self._body),
            ),
            self._body,
            self._deadline,
        )


class Templates:
    """The templates of the definitions in use: at most `size`, those first made are forgotten first.

    The default holds a peak of 30,000 tasks at one instant, in less than 30 MB.
    """

    def __init__(self, size: int = 32_768) -> None:
        self._size = size
        self._made: dict[UUID, tuple[Task, Template]] = {}

    def of(self, task: Task) -> Template:
        """Raises:
        ValueError: as `Template`.
        """
        made = self._made.get(task.id)
        if made is not None and made[0] is task:
            return made[1]
        template = Template(task.id, task.call, task.body)
        self._made.pop(task.id, None)
        self._made[task.id] = (task, template)
        if len(self._made) > self._size:
            del self._made[next(iter(self._made))]
        return template


def _own(headers: dict[str, str], content: bytes) -> Headers:
    given = {name.lower() for name in headers}
    defaults = [default for default in _DEFAULTS if default[0].lower() not in given]
    if content and "content-type" not in given:
        defaults.append(("Content-Type", "application/json"))
    return (*headers.items(), *defaults)


def rfc3339(instant: datetime) -> str:
    """UTC with `Z`; fractions only where there are any (RFC 3339, section 5.6)."""
    if instant.tzinfo is not UTC:
        instant = instant.astimezone(UTC)
    return instant.isoformat()[:-6] + "Z"


def traceparent(rng: random.Random) -> str:
    """A new trace, sampled (W3C Trace Context, section 3.2): neither id may be all zeros."""
    trace, parent = rng.getrandbits(128) or 1, rng.getrandbits(64) or 1
    return f"00-{trace:032x}-{parent:016x}-01"
