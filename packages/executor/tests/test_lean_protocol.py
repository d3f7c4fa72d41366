"""One connection of the lean transport: where an answer ends, what is none, and which connection carries another."""

import pytest

from lean_bench import Exchange, turns
from tocsin.common.store.rows import Outcome
from tocsin.executor.transport import lean_protocol
from tocsin.executor.transport.lean_protocol import MAX_ANSWER_BYTES, MAX_HEAD_BYTES, MAX_HEADERS
from tocsin.executor.transport.port import MAX_BODY_BYTES, Failure, Response

HEAD = b"HTTP/1.1 200 OK\r\n"
OK = HEAD + b"Content-Length: 2\r\n\r\nok"


def answered(*pieces: bytes, method: str = "POST") -> tuple[Exchange, Response | Failure | None]:
    """The exchange, and its result if it has one."""
    exchange = Exchange()
    answer = exchange.send(method)
    for piece in pieces:
        exchange.connection.data_received(piece)
    return exchange, answer.result() if answer.done() else None


def response(*pieces: bytes, method: str = "POST") -> tuple[Exchange, Response]:
    exchange, result = answered(*pieces, method=method)
    assert isinstance(result, Response), result
    return exchange, result


KEPT = [
    OK,
    HEAD + b"Content-Length: 0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nTrailer: x\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    b"HTTP/1.1 200\nContent-Length: 2\n\nok",
    HEAD + b"Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n",
]


@pytest.mark.parametrize("data", KEPT)
async def test_an_answer_is_whole_however_it_is_cut_and_its_connection_is_kept(data: bytes) -> None:
    exchange, whole = response(data)
    assert exchange.kept
    for pieces in ([data[:number], data[number:]] for number in range(1, len(data))):
        exchange, result = response(*pieces)
        assert (result, exchange.kept) == (whole, True), pieces
    exchange, result = response(*(bytes([byte]) for byte in data))
    assert (result, exchange.kept) == (whole, True)


SPOILT = [
    OK + b"H",
    OK + OK,
    HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nok",
    HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nok more",
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 204 No Content\r\n\r\nbody",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore",
]


@pytest.mark.parametrize("data", SPOILT)
async def test_a_connection_that_may_hold_more_than_the_answer_is_closed(data: bytes) -> None:
    exchange, result = response(data)
    assert (result.body in (b"ok", b""), exchange.transport.closed, exchange.keeper.released) == (True, True, [])


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (HEAD + b"Content-Length: 2\r\n\r\n", True),
        (HEAD + b"Content-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 200000\r\n\r\n", True),
        (HEAD + b"Content-Length: 2\r\n\r\nok", False),
        (HEAD + b"Content-Length: 4\r\n\r\n\r\n\r\n", False),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", False),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", False),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5", False),
        (HEAD + b"\r\n", False),
    ],
)
async def test_an_answer_to_head_ends_with_its_head(data: bytes, kept: bool) -> None:
    exchange, result = response(data, method="HEAD")
    assert (result.body, exchange.kept) == (b"", kept)
    if kept:
        again = exchange.send("POST")
        exchange.connection.data_received(OK)
        assert again.result() == Response(200, (("Content-Length", "2"),), b"ok", False, 1.0)


NO_HTTP = [
    HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
    HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n",
    HEAD + b"Content-Length: +2\r\n\r\n",
    HEAD + b"Content-Length: 2, 2\r\n\r\n",
    HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nokay",
    HEAD + b"No colon\r\n\r\n",
    b"HTTP/1.1 99 Low\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc",
    b"HTTP/1.1 100 Continue\r\nContent-Length: 2\r\n\r\nok" + OK,
    b"\x16\x03\x01\x00",
    HEAD + b"X: y\r\n" * (MAX_HEADERS + 1) + b"\r\n",
    HEAD + b"X: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n",
    HEAD + b"X: " + b"y" * MAX_HEAD_BYTES,
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * MAX_ANSWER_BYTES,
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nT: " + b"x" * MAX_ANSWER_BYTES,
    b"HTTP/1.1 102 Processing\r\n\r\n" * 33 + OK,
]


@pytest.mark.parametrize("data", NO_HTTP, ids=lambda data: repr(data[17:60]))
async def test_what_is_no_http_ends_the_call_and_the_connection(data: bytes) -> None:
    wrong_in_its_body = data.startswith(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for method in ("POST",) if wrong_in_its_body else ("POST", "HEAD"):
        exchange, result = answered(data, method=method)
        assert isinstance(result, Failure), result
        assert (result.outcome, result.sent, exchange.transport.closed) == (Outcome.PROTOCOL_ERROR, True, True)


async def test_the_largest_head_and_body_are_taken() -> None:
    head = HEAD + b"X: " + b"y" * (MAX_HEAD_BYTES - 200) + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    _, result = response(head, b"1\r\nx\r\n" * MAX_BODY_BYTES, b"0\r\n\r\n")
    assert (len(result.body), result.truncated) == (MAX_BODY_BYTES, False)


LIMITS = {"MAX_HEADERS": 14, "MAX_HEAD_BYTES": 16, "MAX_ANSWER_BYTES": 17}


@pytest.mark.parametrize("limit", LIMITS)
async def test_the_check_catches_a_limit_that_is_not_kept(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean_protocol, limit, 10**9)
    _, result = answered(NO_HTTP[LIMITS[limit]])
    assert not isinstance(result, Failure)


@pytest.mark.parametrize(
    "head", [HEAD + b"\r\n", HEAD + b"Transfer-Encoding: gzip\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"]
)
async def test_a_body_without_length_is_whole_where_its_connection_ends_well(head: bytes) -> None:
    exchange = Exchange()
    answer = exchange.send()
    exchange.connection.data_received(head + b"hel")
    exchange.connection.data_received(b"lo")
    assert not answer.done()
    exchange.connection.eof_received()
    result = answer.result()
    assert isinstance(result, Response)
    assert (result.body, exchange.transport.closed) == (b"hello", True)


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset"), None])
async def test_a_body_without_length_is_cut_off_where_its_connection_just_ends(error: Exception | None) -> None:
    """None: with TLS, an end without its farewell; or this side's."""
    exchange = Exchange()
    answer = exchange.send()
    exchange.connection.data_received(HEAD + b"\r\nhello")
    exchange.transport.end(error)
    await turns()
    result = answer.result()
    assert isinstance(result, Failure)
    assert (result.outcome, result.status, result.error) == (
        Outcome.CONNECTION_LOST,
        200,
        "the answer was cut off in its body",
    )


@pytest.mark.parametrize(
    "data",
    [b"", b"HTTP/1.1 2", HEAD + b"Content-Length: 2\r\n\r\no", HEAD + b"Transfer-Encoding: x, Chunked \r\n\r\n1"],
)
async def test_an_end_by_fin_cuts_off_what_says_how_long_it_is(data: bytes) -> None:
    exchange = Exchange()
    answer = exchange.send()
    if data:
        exchange.connection.data_received(data)
    exchange.connection.eof_received()
    exchange.transport.end(None)
    await turns()
    result = answer.result()
    assert isinstance(result, Failure)
    assert (result.outcome, result.sent) == (Outcome.CONNECTION_LOST, True)


async def test_an_answer_before_the_request_is_wholly_taken_spoils_the_connection() -> None:
    exchange = Exchange()
    exchange.transport.unsent = 1
    answer = exchange.send()
    exchange.transport.unsent = 0
    exchange.connection.data_received(OK)
    assert isinstance(answer.result(), Response)
    assert (exchange.transport.closed, exchange.keeper.released) == (True, [])


async def test_what_nobody_has_asked_for_ends_the_connection() -> None:
    exchange, _ = response(OK)
    exchange.connection.data_received(OK)
    await turns()
    assert (exchange.transport.closed, exchange.keeper.lost_ones) == (True, [exchange.connection])
    new = Exchange()
    new.connection.data_received(b"220 mail.example ESMTP\r\n")
    assert new.transport.closed


async def test_an_answer_after_a_cancelled_call_is_nobodys() -> None:
    exchange = Exchange()
    answer = exchange.send()
    answer.cancel()
    exchange.connection.abort()
    exchange.connection.data_received(OK)
    await turns()
    assert (answer.cancelled(), exchange.keeper.released) == (True, [])
