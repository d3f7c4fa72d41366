"""Checks of B51: no call reaches an address that was not allowed, whatever names say and when."""

from endpoints import OK, Line, Names, TransportFactory, always, answering, calling, listening, outgoing
from tocsin.common.store.rows import Outcome

_PUBLIC = "93.184.216.34"
_LITERALS = (
    "127.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "100.64.0.1",
    "169.254.169.254",
    "[fd00:ec2::254]",
    "[fec0::1]",
    "224.0.0.1",
    "0.0.0.0",
)


async def b51_internal_addresses_are_refused(make: TransportFactory) -> None:
    async def connected(_line: Line) -> None: ...

    addresses = {literal: literal.strip("[]") for literal in _LITERALS}
    names = Names(localhost=[("127.0.0.1", "::1")])
    names.names["localhost."] = [("127.0.0.1",)]
    names.names["both.example"] = [(_PUBLIC, "127.0.0.1")]
    for number, address in enumerate(addresses.values()):
        names.names[f"n{number}.example"] = [(address,)]
    async with listening(connected) as endpoint, calling(make, names=names, allow="") as caller:
        for host in (*addresses, *names.names):
            failure = await caller.failure(outgoing(endpoint.url(host=host)))
            assert (failure.outcome, failure.sent) == (Outcome.EGRESS_REFUSED, False), (host, failure)
            assert "TOCSIN_EGRESS_ALLOW" in failure.error
            if host in addresses:
                assert addresses[host] in failure.error
        assert endpoint.accepted == 0


async def b51_the_connection_goes_to_the_address_that_was_checked(make: TransportFactory) -> None:
    """A name that changes its mind after the check (DNS rebinding) gains nothing."""
    names = Names(rebind_example=[("127.0.0.1",), (_PUBLIC,)])
    async with answering(always(OK)) as endpoint, calling(make, names=names) as caller:
        await caller.answer(outgoing(endpoint.url(host="rebind.example"), deadline=1.0))
        assert names.asked == ["rebind.example"]
        assert endpoint.seen[0].value("host") == f"rebind.example:{endpoint.port}"


async def b51_each_attempt_is_checked_again(make: TransportFactory) -> None:
    """An open connection to an address that the name no longer has is not used."""
    names = Names(moved_example=[("127.0.0.1",), ("10.0.0.1",)])
    async with answering(always(OK)) as endpoint, calling(make, names=names) as caller:
        await caller.answer(outgoing(endpoint.url(host="moved.example")))
        failure = await caller.failure(outgoing(endpoint.url(host="moved.example")))
        assert failure.outcome is Outcome.EGRESS_REFUSED
        assert len(endpoint.seen) == 1


async def a_name_without_address_is_a_dns_error(make: TransportFactory) -> None:
    async with calling(make) as caller:
        failure = await caller.failure(outgoing("http://nowhere.example/"))
        assert (failure.outcome, failure.sent) == (Outcome.DNS_ERROR, False)
        assert "nowhere.example" in failure.error
