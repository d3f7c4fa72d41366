"""From a begun run to the request that goes out."""

import random
from datetime import UTC, datetime
from typing import Final

from tocsin.common.ids import planted_at
from tocsin.common.models import CallSpec
from tocsin.common.store.rows import Begun
from tocsin.common.target import parse_target
from tocsin.executor.signature import Signer
from tocsin.executor.transport.port import Headers, OutgoingRequest

USER_AGENT: Final = "Tocsin/0.1"

_DEFAULTS: Final = (
    ("User-Agent", USER_AGENT),
    ("Accept", "*/*"),
    ("Accept-Encoding", "identity"),  # the answer is kept as it comes
)


def build_request(
    call: CallSpec, body: bytes | None, run: Begun, signer: Signer, *, now: datetime, rng: random.Random
) -> OutgoingRequest:
    """The request of one attempt. `now` is wall time, for the signature; `rng` makes the trace.

    A task's own header wins over a default; names that Tocsin sets cannot be a task's own.

    Raises:
        ValueError: the stored call breaks a rule that it passed when it was stored.
    """
    content = body or b""
    return OutgoingRequest(
        target=parse_target(call.url),
        method=call.method.value,
        headers=(
            *_own(call.headers, content),
            ("Idempotency-Key", str(run.run_id)),
            ("Tocsin-Attempt", str(run.attempt)),
            ("Tocsin-Fence", str(run.fence)),
            # a run-now has no slot: what it was asked for at, the same on every attempt
            ("Tocsin-Scheduled-For", rfc3339(run.slot or planted_at(run.run_id))),
            ("Tocsin-Task", str(run.task_id)),
            ("traceparent", traceparent(rng)),
            *signer.headers(run.run_id, now, content),
        ),
        body=content,
        deadline=call.timeout_seconds,
    )


def _own(headers: dict[str, str], content: bytes) -> Headers:
    given = {name.lower() for name in headers}
    defaults = [default for default in _DEFAULTS if default[0].lower() not in given]
    if content and "content-type" not in given:
        defaults.append(("Content-Type", "application/json"))
    return (*headers.items(), *defaults)


def rfc3339(instant: datetime) -> str:
    """UTC with `Z`; fractions only where there are any (RFC 3339, section 5.6)."""
    return instant.astimezone(UTC).isoformat()[:-6] + "Z"


def traceparent(rng: random.Random) -> str:
    """A new trace, sampled (W3C Trace Context, section 3.2): neither id may be all zeros."""
    trace, parent = rng.getrandbits(128) or 1, rng.getrandbits(64) or 1
    return f"00-{trace:032x}-{parent:016x}-01"
