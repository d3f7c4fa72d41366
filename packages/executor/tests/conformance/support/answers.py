"""Answers to fuzz a transport with: as the grammar of RFC 9112 has them, cut off, mutated, and no answer at all.

An answer is written in pieces, and then its connection stays, ends, is reset, or falls silent. Of an answer by the
grammar it is known what a transport must make of it; of a mutated one only what it must not do.
"""

import re
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from tocsin.common.store.rows import Outcome
from tocsin.executor.transport.port import MAX_BODY_BYTES, MAX_INTERIM_ANSWERS


class Ending(Enum):
    """What the endpoint does after the last byte. KEEP reads the next request; HANG answers no more."""

    KEEP = "keep"
    FIN = "fin"
    RESET = "reset"
    HANG = "hang"


@dataclass(frozen=True)
class Whole:
    """The transport must return this answer."""

    status: int
    body: bytes


@dataclass(frozen=True)
class Failed:
    """The transport must return a failure of this kind."""

    outcome: Outcome


_RUN = re.compile(r"(.{1,9}?)\1{30,}")


@dataclass(frozen=True)
class Exchange:
    """One request of `method`, and the pieces of its answer. `expected` is None where nothing is known."""

    method: str
    pieces: tuple[bytes, ...]
    ending: Ending
    expected: Whole | Failed | None

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        """How Hypothesis shows it: what goes on for long is shortened."""
        printer.text(_RUN.sub(lambda run: f"<{len(run[0]):,} of {run[1]}>", repr(self)))


class Framing(Enum):
    """What says where a body ends (RFC 9112, section 6.3)."""

    LENGTH = "length"
    CHUNKS = "chunks"
    END = "end"
    NONE = "none"


BODILESS = (204, 304)
_TOKEN = st.sampled_from(["X", "x-a", "Server", "Date", "Set-Cookie", "Retry-After", "Content-Type", "ETag", "_", "1"])
_VALUE = st.sampled_from(["", "a", " b ", "\tc", "caf\xe9", "0", "x" * 300, 'a, b; c="d"', "close, x"])
_HEADERS = st.lists(st.tuples(_TOKEN, _VALUE), max_size=3)
_BODY = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", b"0\r\n\r\n", b"x" * (MAX_BODY_BYTES + 1)]),
)
_REASON = st.sampled_from(["OK", "", "Not so good", "\xfc"])
_SIZE = st.sampled_from(["{:x}", "{:X}", "{:04x}", "{:x};a=b", "{:x};a"])
_INTERIM = st.sampled_from(
    [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", b"HTTP/1.1 102 \r\n\r\n"]
)


@st.composite
def pieces(draw: st.DrawFn, data: bytes) -> tuple[bytes, ...]:
    """`data` in one piece, or split where chance has it."""
    cuts = draw(st.lists(st.integers(1, max(1, len(data) - 1)), max_size=4, unique=True).map(sorted))
    edges = [0, *cuts, len(data)]
    return tuple(data[start:end] for start, end in pairwise(edges))


@st.composite
def _chunks(draw: st.DrawFn, body: bytes) -> bytes:
    data = b""
    for piece in draw(pieces(body)):
        if piece:
            data += draw(_SIZE).format(len(piece)).encode() + b"\r\n" + piece + b"\r\n"
    trailers = draw(st.sampled_from([b"", b"", b"X-Sum: 1\r\n"]))
    return data + draw(st.sampled_from([b"0", b"00", b"0;last"])) + b"\r\n" + trailers + b"\r\n"


@st.composite
def _answer(draw: st.DrawFn, method: str) -> tuple[bytes, bytes, Framing, Whole]:
    """Head, body as on the wire, what ends the body, and the answer itself."""
    status = draw(st.sampled_from([200, 200, 200, 201, 299, 301, 404, 410, 500, 503, *BODILESS]))
    framing = draw(st.sampled_from([Framing.LENGTH, Framing.LENGTH, Framing.CHUNKS, Framing.END]))
    body = draw(_BODY)
    rows = draw(_HEADERS)
    version = "1.1" if framing is Framing.CHUNKS else draw(st.sampled_from(["1.1", "1.1", "1.0"]))
    if framing is Framing.LENGTH:
        rows.insert(draw(st.integers(0, len(rows))), ("Content-Length", str(len(body))))
    elif framing is Framing.CHUNKS:
        rows.insert(
            draw(st.integers(0, len(rows))), ("transfer-encoding", draw(st.sampled_from(["chunked", "Chunked"])))
        )
    rows += draw(st.sampled_from([[], [], [("Connection", "close")], [("connection", "keep-alive")]]))
    lines = [f"HTTP/{version} {status} {draw(_REASON)}", *(f"{name}: {value}" for name, value in rows), "", ""]
    head = "\r\n".join(lines).encode("latin-1")
    if method == "HEAD" or status in BODILESS:
        return head, b"", Framing.NONE, Whole(status, b"")
    wire = draw(_chunks(body)) if framing is Framing.CHUNKS else body
    return head, wire, framing, Whole(status, body)


_METHODS = st.sampled_from(["POST", "PUT", "GET", "HEAD"])
_ENDINGS = st.sampled_from(list(Ending))


@st.composite
def by_the_grammar(draw: st.DrawFn) -> Exchange:
    """A whole answer, after interim ones at times too many."""
    method, ending = draw(_METHODS), draw(_ENDINGS)
    head, body, framing, answer = draw(_answer(method))
    interim = draw(st.sampled_from([0, 0, 0, 1, 3, MAX_INTERIM_ANSWERS, MAX_INTERIM_ANSWERS + 1]))
    data = draw(_INTERIM) * interim + head + body
    expected: Whole | Failed = answer
    if interim > MAX_INTERIM_ANSWERS:
        expected = Failed(Outcome.PROTOCOL_ERROR)
    elif framing is Framing.END and len(body) <= MAX_BODY_BYTES:
        expected = _ended(answer, ending)
    return Exchange(method, draw(pieces(data)), ending, expected)


def _ended(answer: Whole, ending: Ending) -> Whole | Failed:
    """What is to be made of an answer that only the end of its connection ends."""
    if ending is Ending.FIN:
        return answer
    return Failed(Outcome.CONNECTION_LOST if ending is Ending.RESET else Outcome.TIMEOUT)


@st.composite
def cut_off(draw: st.DrawFn) -> Exchange:
    """An answer that stops before its last byte."""
    method, ending = draw(_METHODS), draw(_ENDINGS)
    head, body, framing, answer = draw(_answer(method))
    whole = head + body
    cut = draw(
        st.one_of(st.integers(0, len(whole) - 1), st.sampled_from([0, len(head) - 1, len(head), len(whole) - 1]))
    )
    cut = min(cut, len(whole) - 1)
    expected: Whole | Failed | None = Failed(
        Outcome.CONNECTION_LOST if ending in (Ending.FIN, Ending.RESET) else Outcome.TIMEOUT
    )
    if framing is Framing.END and cut >= len(head):
        expected = _ended(Whole(answer.status, whole[len(head) : cut]), ending)
    if cut - len(head) >= MAX_BODY_BYTES:
        expected = None  # all that is kept may have come: how the rest ends need not be known
    return Exchange(method, draw(pieces(whole[:cut])), ending, expected)


_WORDS = st.sampled_from(
    [
        *(
            b"\r\n",
            b"\n",
            b"\r",
            b"\0",
            b":",
            b" ",
            b"\t",
            b"-1",
            b"+2",
            b"0x5",
            b"ffffffffffffffffff\r\n",
            b"0\r\n\r\n",
        ),
        *(
            b"Content-Length: 5\r\n",
            b"Content-Length: 5, 5\r\n",
            b"Content-Length:\r\n",
            b"Transfer-Encoding: chunked\r\n",
        ),
        *(b"Transfer-Encoding: chunked, gzip\r\n", b"Connection: upgrade\r\nUpgrade: x\r\n", b" folded\r\n"),
        *(
            b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
            b"HTTP/1.1 101 S\r\n\r\n",
            b"HTTP/0.9 200\r\n",
            b"HTTP/2.0 ",
        ),
        *(b"Content-Encoding: gzip\r\n", b"X: " + b"y" * 9_000 + b"\r\n", b"Z: z\r\n" * 200),
    ]
)


@st.composite
def mutated(draw: st.DrawFn) -> Exchange:
    """An answer with bytes changed, dropped, repeated or put in between."""
    method = draw(_METHODS)
    head, body, _, _ = draw(_answer(method))
    data = head + body
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 20)))
        change = draw(st.sampled_from(["put", "put", "drop", "repeat", "replace"]))
        middle = draw(_WORDS) if change == "put" else draw(st.binary(max_size=4)) if change == "replace" else b""
        data = data[:start] + middle + data[end if change in ("drop", "replace") else start :]
        if change == "repeat":
            data = data[:end] + data[start:end] + data[end:]
    return Exchange(method, draw(pieces(data)), draw(_ENDINGS), None)


@st.composite
def no_answer(draw: st.DrawFn) -> Exchange:
    """Bytes of any kind."""
    return Exchange(draw(_METHODS), draw(pieces(draw(st.binary(max_size=60)))), draw(_ENDINGS), None)


EXCHANGES = st.lists(st.one_of(by_the_grammar(), cut_off(), mutated(), no_answer()), min_size=1, max_size=4)
"""Exchanges one after the other, through one transport."""
