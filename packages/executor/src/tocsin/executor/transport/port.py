"""The port: what every transport promises about one call, and the words it speaks in.

Promises, held for each transport by `tests/conformance/transport_suite.py`:

- At most one request goes over the wire per call. Redirects are not followed, nothing is sent again,
  nothing is decompressed; no cookie, proxy, netrc or environment variable plays a part.
- The whole call, name and connection included, ends at `OutgoingRequest.deadline` seconds.
- The connection goes to an address that the egress guard has passed in this call.
- No byte of the request leaves before `Gate.check` has returned in the same event-loop step.
- An answer counts once its head and its body, or the first `MAX_BODY_BYTES` of it, have arrived.
  An answer cut off before is a `Failure`, whatever its status line said: a task is called at least
  once and carries an idempotency key, so calling again is safe, and taking a crash for a success is not.
  A body with neither length nor chunks is whole where its connection ends by FIN, and cut off where
  it ends otherwise (RFC 9112, sections 6.3 and 8).
- More than `MAX_INTERIM_ANSWERS` interim answers (1xx) before the answer are no HTTP.
- A call that is cancelled leaves no socket open.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from tocsin.common.errors import TocsinError
from tocsin.common.store.rows import Outcome
from tocsin.common.target import Target

MAX_BODY_BYTES: Final = 16 * 1024
"""How much of an answer's body is read and kept; a connection with more on it is closed."""

MAX_INTERIM_ANSWERS: Final = 32
"""How many interim answers (RFC 9110, section 15.2) one call passes over."""

Headers = tuple[tuple[str, str], ...]
"""Header fields in their order on the wire; a name may stand more than once."""


class NotStartedError(TocsinError):
    """The gate was closed when the connection was open: nothing has been sent.

    `rule` says which check failed, for the log.
    """

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class Gate(Protocol):
    """What may still stop a call once its connection is open."""

    async def ready(self) -> None:
        """Awaited with the connection open, before anything is sent; it may take its time.

        Awaited once more if that connection turns out to be dead and another is opened.

        Raises:
            NotStartedError: the call must not start; `Transport.call` passes it on.
        """
        ...

    def check(self) -> None:
        """Called once, in the same event-loop step as the first byte; when it returns, the request goes out.

        Raises:
            NotStartedError: the call must not start; `Transport.call` passes it on.
        """
        ...


class OutgoingRequest(NamedTuple):
    """One request, complete but for `Host`, `Content-Length` and framing.

    `headers` are checked names and values (`tocsin.common.target.check_headers`). `deadline` is in
    seconds from the call of `Transport.call` and covers everything, the body of the answer included.
    `fresh`: on a connection that is opened for it, none that has waited for a call.
    """

    target: Target
    method: str
    headers: Headers
    body: bytes
    deadline: float
    fresh: bool = False


class Response(NamedTuple):
    """An answer. `started` is the monotonic instant of the first byte sent.

    `body` holds at most `MAX_BODY_BYTES`, as received, not decompressed; `truncated`: there was more.
    """

    status: int
    headers: Headers
    body: bytes
    truncated: bool
    started: float

    def values(self, name: str) -> list[str]:
        """All values of a header, whatever its case, blanks around them dropped."""
        wanted = name.lower()
        return [value.strip(" \t") for key, value in self.headers if key.lower() == wanted]


@dataclass(frozen=True, slots=True)
class Failure:
    """A call without an answer that counts.

    `started` is the monotonic instant of the first byte sent, None if nothing was sent. `status` is
    that of an answer which was cut off, for the record only. `error` is one clean line. `reused`: the
    connection had been open before this call and ended without a byte of an answer, so it is likely
    that the endpoint had closed it for its age and saw nothing of the request.
    """

    outcome: Outcome
    error: str
    started: float | None = None
    status: int | None = None
    reused: bool = False

    @property
    def sent(self) -> bool:
        """Whether the endpoint may have seen the request."""
        return self.started is not None


class Warmer(Protocol):
    def warm(self, target: Target, count: int) -> None:
        """Opens connections ahead until `count` are open to the target's host and port, as far as that holds up no
        call. It sends nothing, returns at once, and fails in silence."""
        ...


class Transport(Protocol):
    async def call(self, request: OutgoingRequest, gate: Gate) -> Response | Failure:
        """Makes one call.

        Raises:
            NotStartedError: from the gate; nothing was sent.
            asyncio.CancelledError: the caller cancelled it; whether something was sent is known to its
                gate: it was if `check` had returned.
        """
        ...

    async def close(self) -> None:
        """Closes idle connections; calls in flight fail."""
        ...
