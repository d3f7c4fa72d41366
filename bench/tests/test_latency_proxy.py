"""The latency proxy delays what passes and changes nothing of it."""

import asyncio
import random
import statistics
from dataclasses import replace

import pytest

from bench.network import AZ, Latency, LatencyProxy, Way, delay
from bench.reach import at_port


class OvertakingWay(Way):
    """A broken twin: what is due passes what came before it."""

    def take(self, now: float) -> bytes:
        self._chunks = type(self._chunks)(sorted(self._chunks))
        return super().take(now)


def travelled(way: Way, latency: Latency, chunks: list[bytes]) -> bytes:
    """Sends a chunk every 10 ms and looks every millisecond."""
    rng = random.Random(latency.seed)
    came = b""
    for millisecond in range(10 * len(chunks) + 1000):
        if millisecond % 10 == 0 and (n := millisecond // 10) < len(chunks):
            way.put(millisecond / 1000 + delay(latency, rng, answer=True), chunks[n])
        came += way.take(millisecond / 1000)
    return came


CHUNKS = [b"<%d>" % number for number in range(200)]
ROUGH = Latency(round_trip_ms=10, jitter_ms=20, loss=0.05, tail_share=0.05, tail_ms=90)


def test_nothing_overtakes_and_nothing_is_missing() -> None:
    way = Way()
    assert travelled(way, ROUGH, CHUNKS) == b"".join(CHUNKS)
    assert (way.size, way.due) == (0, None)


def test_a_proxy_that_lets_chunks_overtake_is_found_out() -> None:
    assert travelled(OvertakingWay(), ROUGH, CHUNKS) != b"".join(CHUNKS)


def test_what_is_in_flight_at_once_does_not_add_up() -> None:
    way = Way()
    for chunk in CHUNKS:
        way.put(0.5, chunk)
    assert way.take(0.499) == b""
    assert way.take(0.5) == b"".join(CHUNKS)


def test_a_round_trip_takes_what_was_asked_for() -> None:
    rng = random.Random(1)
    assert delay(AZ, rng, answer=True) + delay(AZ, rng, answer=False) == pytest.approx(0.001)


@pytest.mark.parametrize("answer", [True, False])
def test_jitter_and_tail_are_of_the_answers_and_losses_of_both_ways(answer: bool) -> None:
    rng = random.Random(1)
    calm, still = Latency(round_trip_ms=100), 0.1 if answer else 0.0
    drawn = [delay(replace(calm, jitter_ms=10), rng, answer=answer) for _ in range(2000)]
    assert statistics.fmean(drawn) == pytest.approx(still, abs=0.001)
    assert statistics.pstdev(drawn) == pytest.approx(0.01 if answer else 0.0, rel=0.1)
    tail = [delay(replace(calm, tail_share=0.1, tail_ms=50), rng, answer=answer) for _ in range(2000)]
    assert sum(found > still + 0.02 for found in tail) / 2000 == pytest.approx(0.1 if answer else 0.0, abs=0.03)
    lossy = [delay(replace(calm, loss=0.1), rng, answer=answer) for _ in range(2000)]
    assert sum(found > still + 0.15 for found in lossy) / 2000 == pytest.approx(0.1, abs=0.03)


def test_uniform_jitter_only_adds_and_no_delay_is_negative() -> None:
    rng = random.Random(1)
    uniform = [delay(Latency(1, jitter_ms=10, jitter="uniform"), rng, answer=True) for _ in range(500)]
    assert 0.001 <= min(uniform) < max(uniform) <= 0.011
    assert min(delay(Latency(1, jitter_ms=50), rng, answer=True) for _ in range(500)) == 0.0


def test_the_same_seed_gives_the_same_delays() -> None:
    def drawn() -> list[float]:
        rng = random.Random(ROUGH.seed)
        return [delay(ROUGH, rng, answer=True) for _ in range(50)]

    assert drawn() == drawn()


def test_the_same_database_by_another_port() -> None:
    assert at_port("postgresql://a:b@127.0.0.1:5432/c?d=e", 6000) == "postgresql://a:b@127.0.0.1:6000/c?d=e"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.parametrize("latency", [Latency(), Latency(1, jitter_ms=0.2, loss=0.1, retransmit_ms=3)])
async def test_megabytes_come_back_whole_through_the_real_proxy_to_a_reader_that_is_slow(latency: Latency) -> None:
    sent = random.Random(1).randbytes(12 * 1024 * 1024)
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, LatencyProxy(("127.0.0.1", server.sockets[0].getsockname()[1])) as proxy:
        await proxy.set(latency)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(sent)  # all at once: more than any buffer on the way holds, and nobody reads yet
        back = await reader.readexactly(len(sent))
        writer.write_eof()
        assert await reader.read() == b""  # the end is passed on, and comes back
        assert back == sent
        writer.close()


async def test_a_server_that_is_away_ends_the_clients_connection() -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with LatencyProxy(("127.0.0.1", port)) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
