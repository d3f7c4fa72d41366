"""What every transport holds to when it connects: the order of addresses, TLS, and how long a connection is kept."""

import asyncio
import random
import ssl
from typing import Final

KEEPALIVE_SECONDS: Final = 75.0
"""Longer than a minute, so that a task that runs every minute finds its connection open."""

OPENED_AHEAD_SECONDS: Final = {"http": 4.0, "https": 10.0}
"""How long before a peak its connections are opened, by scheme. Soon before it, for many a server closes what has been
idle for five seconds; but a handshake costs five times a plain connection, and a peak wants thousands."""

MAX_ADDRESSES: Final = 4
"""How many addresses of a name one call tries; each but the last gets its part of the time left."""


def default_ssl_context() -> ssl.SSLContext:
    """Certificates and names verified against the system's authorities; HTTP/1.1 only."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def unsent(transport: asyncio.WriteTransport) -> int:
    """Bytes written that the operating system has not taken yet. Of a TLS transport `get_write_buffer_size` leaves out
    what waits below it, and nothing public tells that (CPython 3.11 to 3.14; held by the conformance suite)."""
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return transport.get_write_buffer_size() + (0 if below is None else below.get_write_buffer_size())


def in_order_of_trial(addresses: tuple[str, ...], rng: random.Random) -> tuple[str, ...]:
    """At most `MAX_ADDRESSES` of a name's addresses: IPv4 first, each family from a random one on."""
    if len(addresses) == 1:
        return addresses
    picked: list[str] = []
    for family in (
        [address for address in addresses if ":" not in address],
        [address for address in addresses if ":" in address],
    ):
        first = rng.randrange(len(family)) if family else 0
        picked += family[first:] + family[:first]
    return tuple(picked[:MAX_ADDRESSES])
