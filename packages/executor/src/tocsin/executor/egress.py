"""The egress guard: which addresses may be called.

Everything that is not public is refused, on the addresses that a name has at the moment of the call;
a name is refused whole when one of its addresses is. What the operator wants called all the same he
names in `TOCSIN_EGRESS_ALLOW`. `ipaddress.is_global` is not used: its answers differ between Python
versions, and it calls multicast, 6to4 and NAT64 addresses global.
"""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from tocsin.common.errors import TocsinError
from tocsin.common.target import Target
from tocsin.executor.resolver import Resolver

SETTING: Final = "TOCSIN_EGRESS_ALLOW"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _networks(table: dict[str, str]) -> tuple[tuple[Network, str], ...]:
    return tuple((ip_network(cidr), name) for cidr, name in table.items())


# IANA IPv4 Special-Purpose Address Registry, multicast (RFC 5771), and the one cloud metadata
# address that lies in public space.
_REFUSED_V4 = _networks(
    {
        "0.0.0.0/8": "unspecified",
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "carrier-grade NAT",
        "127.0.0.0/8": "loopback",
        "168.63.129.16/32": "metadata",
        "169.254.0.0/16": "link-local",
        "172.16.0.0/12": "private",
        "192.0.0.0/24": "reserved",
        "192.0.2.0/24": "documentation",
        "192.88.99.0/24": "6to4",
        "192.168.0.0/16": "private",
        "198.18.0.0/15": "benchmark",
        "198.51.100.0/24": "documentation",
        "203.0.113.0/24": "documentation",
        "224.0.0.0/4": "multicast",
        "255.255.255.255/32": "broadcast",
        "240.0.0.0/4": "reserved",
    }
)

# Only 2000::/3 is given out as global unicast (IANA IPv6 Address Space); the first rows are parts of
# it that are not, or that carry an IPv4 address, the others name what lies outside for the message.
_REFUSED_V6 = _networks(
    {
        "2001::/23": "reserved",
        "2001:db8::/32": "documentation",
        "2002::/16": "6to4",
        "3fff::/20": "documentation",
        "::/128": "unspecified",
        "::1/128": "loopback",
        "::ffff:0:0/96": "IPv4-mapped",
        "::/96": "IPv4-compatible",
        "64:ff9b::/96": "NAT64",
        "64:ff9b:1::/48": "NAT64",
        "fc00::/7": "private",
        "fe80::/10": "link-local",
        "fec0::/10": "site-local",
        "ff00::/8": "multicast",
    }
)
_GLOBAL_V6 = IPv6Network("2000::/3")


class EgressRefusedError(TocsinError):
    """An address of the endpoint may not be called."""

    def __init__(self, address: str, kind: str) -> None:
        super().__init__(f"address {address} is {kind}, not public; an operator can allow it with {SETTING}")
        self.address = address
        self.kind = kind


_parsed = lru_cache(maxsize=8_192)(ip_address)


@lru_cache(maxsize=8_192)
def refusal(address: str) -> str | None:
    """Why an address is not public, in a word; None if it is.

    Raises:
        ValueError: `address` is not an IP address in its usual form.
    """
    value = _parsed(address)
    table = _REFUSED_V4 if isinstance(value, IPv4Address) else _REFUSED_V6
    for network, name in table:
        if value in network:
            return name
    if isinstance(value, IPv6Address) and value not in _GLOBAL_V6:
        return "reserved"
    return None


@dataclass(frozen=True, slots=True)
class Allowed:
    """One entry of the setting: a network, and one port of it or all."""

    network: Network
    port: int | None

    @classmethod
    def parse(cls, text: str) -> "Allowed":
        """`10.1.0.0/16`, `10.1.2.3:8080`, `fd00::/8`, `[fd00::/8]:8080`.

        Raises:
            ValueError: one sentence with the entry that cannot be read.
        """
        network, port = text, ""
        if text.startswith("["):
            network, bracket, port = text[1:].partition("]")
            if not bracket or not port.startswith(":"):
                raise ValueError(f"{SETTING}: {text!r} is not [network]:port")
            port = port.removeprefix(":")
        elif text.count(":") == 1:
            network, _, port = text.partition(":")
            if not port:
                raise ValueError(f"{SETTING}: {text!r} ends without its port")
        try:
            number = int(port) if port else None
            if number is not None and not 1 <= number <= 65_535:
                raise ValueError(port)
            return cls(ip_network(network), number)
        except ValueError as error:
            raise ValueError(
                f"{SETTING}: {text!r} must be a network like 10.1.0.0/16, with or without :port"
            ) from error

    def covers(self, address: Address, port: int) -> bool:
        return self.port in (None, port) and address in self.network


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """Public addresses, and what the operator allows besides."""

    allowed: tuple[Allowed, ...] = ()

    @classmethod
    def parse(cls, setting: str) -> "EgressPolicy":
        """The policy of a setting: entries with commas or blanks between them; empty allows nothing more.

        Raises:
            ValueError: as `Allowed.parse`.
        """
        return cls(tuple(Allowed.parse(entry) for entry in setting.replace(",", " ").split()))

    def check(self, address: str, port: int) -> None:
        """Returns if the address may be called on this port.

        Raises:
            EgressRefusedError: it may not, with the reason.
        """
        try:
            kind = refusal(address)
        except ValueError:
            raise EgressRefusedError(address, "no IP address") from None
        if kind is None:
            return
        value = _parsed(address)
        if not any(entry.covers(value, port) for entry in self.allowed):
            raise EgressRefusedError(address, kind)


class EgressGuard:
    """From a target to the addresses that this one call may connect to."""

    def __init__(self, policy: EgressPolicy, resolver: Resolver) -> None:
        self._policy = policy
        self._resolver = resolver

    async def addresses(self, target: Target) -> tuple[str, ...]:
        """All addresses of the target, each of them checked; never empty.

        Raises:
            EgressRefusedError: one of them may not be called.
            ResolveError: the name has no address, or no name server answered.
        """
        found = (target.host,) if target.is_ip else await self._resolver.resolve(target.host)
        for address in found:
            self._policy.check(address, target.port)
        return found

    async def close(self) -> None:
        await self._resolver.close()
