"""One HTTP/1.1 connection of the lean transport: one request written, one answer parsed, and again.

`httptools` (llhttp) parses. It is as lenient as `aiohttp`'s parser, which is llhttp too, so that the two
transports judge an answer alike: a bare LF ends a line, a header may be folded (RFC 9112, sections 2.2 and 5.2).
What frames a body is never read leniently.
"""

import asyncio
import select
from typing import Final, Protocol

import httptools

from tocsin.common.store.rows import Outcome
from tocsin.executor.transport import texts
from tocsin.executor.transport.connecting import unsent
from tocsin.executor.transport.port import MAX_BODY_BYTES, MAX_INTERIM_ANSWERS, Failure, Headers, Response

MAX_HEAD_BYTES: Final = 64 * 1024
"""Of one answer, with all interim ones before it."""

MAX_HEADERS: Final = 256

MAX_ANSWER_BYTES: Final = 256 * 1024
"""Of all that one answer may take on the wire until its body is whole or cut: a body of `MAX_BODY_BYTES` in chunks of a
byte each fits, an endless chunk extension or trailer does not."""

_SWITCHING_PROTOCOLS = 101
_Field = tuple[bytes, bytes]


class Keeper(Protocol):
    """Whoever holds the connections while no call does."""

    def release(self, connection: "Connection") -> None:
        """The answer is whole and the connection may carry another request."""
        ...

    def lost(self, connection: "Connection") -> None:
        """The connection is closed."""
        ...


class Connection(asyncio.Protocol):
    """A connection is silent, or carries one call. It ends itself wherever it could carry no further one.

    `reused`: it has been open before the call that has it. `status`: of the answer under way, once its head is read.
    """

    __slots__ = (
        "_answer", "_fields", "_head_only", "_interim", "_keep", "_keeper", "_loop", "_parser", "_pieces", "_poll",
        "_received", "_size", "_started", "_transport", "_truncated", "_whole", "_wrong", "place", "reused", "status",
    )  # fmt: skip

    max_body_bytes = MAX_BODY_BYTES
    max_interim_answers = MAX_INTERIM_ANSWERS

    def __init__(self, loop: asyncio.AbstractEventLoop, keeper: Keeper, place: object) -> None:
        self._loop = loop
        self._keeper = keeper
        self.place = place
        self.reused = False
        self.status: int | None = None
        self._transport: asyncio.Transport | None = None
        self._poll = select.poll()
        self._answer: asyncio.Future[Response | Failure] | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._wrong: str | None = None
        self._fields: list[_Field] = []
        self._pieces: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._parser = self._new_parser()

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def silent(self) -> bool:
        """Whether nothing can be read on the socket: before a request that is the connection's end, or an answer to
        nobody that would be taken for the next call's. (On a new TLS connection it may be a session's ticket.)"""
        return not self._poll.poll(0)

    def send(self, wire: bytes, method: str, started: float) -> "asyncio.Future[Response | Failure]":
        """Writes a request now, and promises its answer. An answer taken as a whole gives the connection back."""
        assert self._transport is not None
        answer = self._answer = self._loop.create_future()
        self._started = started
        self._head_only = method == "HEAD"
        self.status, self._wrong = None, None
        self._received = self._interim = self._size = 0
        self._whole = self._truncated = False
        self._transport.write(wire)
        # An answer that comes before the request is wholly taken may leave a part of it to be read as the next one.
        self._keep = not unsent(self._transport)
        return answer

    def abort(self) -> None:
        """Frees the socket now: closing would first wait for unsent bytes, or for TLS's farewell."""
        self._answer = None
        if self._transport is not None:
            self._transport.abort()

    def drop(self) -> None:
        """As `abort`, and a call that waits for its answer is told."""
        if self._transport is not None:
            self._transport.abort()

    # --- what the event loop tells ------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._parser is None:
            self.abort()  # nobody has asked
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keep = False  # if the answer is whole, there was more
            if not self._whole and self._wrong is None:
                self._wrong = texts.not_http(str(error))
        if self._wrong is not None:
            self._break(self._wrong)
        elif self._whole:
            if self._head_only:
                self._end_head_only(data)
            self._settle()
        elif self._received > (MAX_HEAD_BYTES if self.status is None else MAX_ANSWER_BYTES):
            self._break(texts.not_http("too long"))

    def eof_received(self) -> None:
        """The other side's FIN, or TLS's farewell: it ends a body without a length as it should. A connection that just
        breaks does not come here (RFC 9112, section 8)."""
        if self._answer is not None and self.status is not None and self._ends_with_the_connection():
            self._keep = False
            self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._parser = None  # it holds this object
        if self._answer is not None:
            self._fail(Outcome.CONNECTION_LOST, self._loss(exc))
        self._keeper.lost(self)

    # --- what the parser tells ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._whole:
            self._keep = False  # a second answer

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status is None:  # else a trailer
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if self._whole:
            return
        if 100 <= status <= 199 and status != _SWITCHING_PROTOCOLS:
            self._interim += 1
            self._fields.clear()
            if self._interim > self.max_interim_answers:
                self._wrong = texts.not_http(f"more than {self.max_interim_answers} interim answers")
            return
        self.status = status
        if status < 200:
            self._wrong = texts.ends_no_request(status)
        elif len(self._fields) > MAX_HEADERS or (
            self._received > MAX_HEAD_BYTES and self._head_size() > MAX_HEAD_BYTES
        ):
            self._wrong = texts.not_http("too long")
        self._keep = self._keep and self._parser.should_keep_alive()
        self._whole = self._head_only

    def on_body(self, data: bytes) -> None:
        if self._whole:
            self._keep = False
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size > self.max_body_bytes:
            self._whole = self._truncated = True
            self._keep = False

    def on_message_complete(self) -> None:
        if self.status is None:
            return  # an interim one
        self._whole = True

    # --- the end of an answer -----------------------------------------------------------------------------------------

    def _new_parser(self) -> httptools.HttpResponseParser:
        parser = httptools.HttpResponseParser(self)
        parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        return parser

    def _end_head_only(self, data: bytes) -> None:
        """The parser waits for the body that an answer to HEAD only announces: the next answer gets a new one."""
        self._parser = self._new_parser()
        chunked = any(name.lower() == b"transfer-encoding" for name, _ in self._fields)
        if chunked or not data.endswith(b"\r\n\r\n"):
            self._keep = False  # there was, or may have been, more than the head

    def _settle(self) -> None:
        answer, status = self._answer, self.status
        assert answer is not None
        assert status is not None
        self._answer = None
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._truncated:
            body = body[: self.max_body_bytes]
        response = Response(status, _decoded(self._fields), body, self._truncated, self._started)
        self._fields, self._pieces = [], []  # or idle connections would hold their last answers
        if not answer.done():
            answer.set_result(response)
        if self._keep:
            self._keeper.release(self)
        else:
            self.abort()

    def _break(self, error: str) -> None:
        self._fail(Outcome.PROTOCOL_ERROR, error)
        self.abort()

    def _fail(self, outcome: Outcome, error: str) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None
        stale = self.reused and outcome is Outcome.CONNECTION_LOST and not self._received
        if not answer.done():
            answer.set_result(Failure(outcome, error, self._started, self.status, stale))

    def _loss(self, exc: Exception | None) -> str:
        if self.status is not None:
            return texts.CUT_OFF
        return texts.CLOSED if exc is None else texts.connection_lost(exc)

    def _ends_with_the_connection(self) -> bool:
        """Whether nothing in its head says where the body ends (RFC 9112, section 6.3)."""
        coding = b""
        for name, value in self._fields:
            lower = name.lower()
            if lower == b"content-length":
                return False
            if lower == b"transfer-encoding":
                coding = value
        return not coding.lower().rstrip(b" \t").endswith(b"chunked")

    def _head_size(self) -> int:
        return sum(len(name) + len(value) for name, value in self._fields)


def _decoded(fields: list[_Field]) -> Headers:
    return tuple([(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields])
