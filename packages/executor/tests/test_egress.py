"""B51: which addresses may be called."""

from ipaddress import ip_address

import pytest

from tocsin.common.target import parse_target
from tocsin.executor.egress import EgressGuard, EgressPolicy, EgressRefusedError, refusal
from tocsin.executor.resolver import ResolveError

REFUSED = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.255.255.255": "private",
    "100.64.0.1": "carrier-grade NAT",
    "100.127.255.255": "carrier-grade NAT",
    "127.0.0.1": "loopback",
    "127.255.255.255": "loopback",
    "168.63.129.16": "metadata",
    "169.254.169.254": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.192": "reserved",
    "192.0.2.1": "documentation",
    "192.88.99.1": "6to4",
    "192.168.0.1": "private",
    "198.19.255.255": "benchmark",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "broadcast",
    "::": "unspecified",
    "::1": "loopback",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "::ffff:93.184.216.34": "IPv4-mapped",
    "::127.0.0.1": "IPv4-compatible",
    "64:ff9b::7f00:1": "NAT64",
    "64:ff9b:1::1": "NAT64",
    "2002:7f00:1::": "6to4",
    "2001::1": "reserved",
    "2001:db8::1": "documentation",
    "3fff::1": "documentation",
    "100::1": "reserved",
    "4000::1": "reserved",
    "5f00::1": "reserved",
    "fd00:ec2::254": "private",
    "fc00::1": "private",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
}
PUBLIC = (
    "1.1.1.1",
    "9.255.255.255",
    "100.63.255.255",
    "100.128.0.1",
    "172.32.0.1",
    "192.169.0.1",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:827::200e",
)


@pytest.mark.parametrize(("address", "kind"), REFUSED.items())
def test_b51_what_is_not_public_is_refused_with_address_and_setting(address: str, kind: str) -> None:
    with pytest.raises(EgressRefusedError) as refused:
        EgressPolicy().check(address, 80)
    assert (refused.value.address, refused.value.kind) == (address, kind)
    assert address in str(refused.value)
    assert "TOCSIN_EGRESS_ALLOW" in str(refused.value)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    EgressPolicy().check(address, 80)


def test_b51_the_standard_library_alone_would_let_some_through() -> None:
    assert any(ip_address(address).is_global for address in REFUSED)
    assert any(not ip_address(address).is_private for address in REFUSED)


@pytest.mark.parametrize("text", ["", "localhost", "2130706433", "127.1", "0177.0.0.1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(EgressRefusedError):
        EgressPolicy.parse("0.0.0.0/0 ::/0").check(text, 80)


def test_the_setting_allows_networks_and_single_ports() -> None:
    policy = EgressPolicy.parse("10.1.0.0/16, 127.0.0.1:8080 [fd00::/8]:443,::1")
    for address, port in (("10.1.2.3", 1), ("127.0.0.1", 8080), ("fd00::1", 443), ("::1", 9)):
        policy.check(address, port)
    for address, port in (
        ("10.2.0.0", 1),
        ("127.0.0.1", 8081),
        ("127.0.0.2", 8080),
        ("fd00::1", 80),
        ("::ffff:10.1.2.3", 1),
    ):
        with pytest.raises(EgressRefusedError):
            policy.check(address, port)


def test_metadata_is_allowed_only_by_its_own_name() -> None:
    EgressPolicy.parse("169.254.169.254/32:80").check("169.254.169.254", 80)
    with pytest.raises(EgressRefusedError):
        EgressPolicy.parse("10.0.0.0/8").check("169.254.169.254", 80)


@pytest.mark.parametrize(
    "setting", ["10.0.0.1/8", "example.com", "10.0.0.0/8:", "10.0.0.0/8:0", "10.0.0.0/8:x", "[::1]8", "[::1"]
)
def test_a_setting_that_cannot_be_read_is_named(setting: str) -> None:
    with pytest.raises(ValueError, match="TOCSIN_EGRESS_ALLOW"):
        EgressPolicy.parse(setting)


class Table:
    def __init__(self, **names: tuple[str, ...]) -> None:
        self.names = names
        self.closed = False

    async def resolve(self, host: str) -> tuple[str, ...]:
        if host not in self.names:
            raise ResolveError(f"{host}: domain name not found")
        return self.names[host]

    async def close(self) -> None:
        self.closed = True


async def test_a_name_is_refused_whole_for_one_private_address() -> None:
    guard = EgressGuard(EgressPolicy(), Table(good=("1.1.1.1", "2606:4700::1"), mixed=("1.1.1.1", "10.0.0.1")))
    assert await guard.addresses(parse_target("http://good/")) == ("1.1.1.1", "2606:4700::1")
    with pytest.raises(EgressRefusedError):
        await guard.addresses(parse_target("http://mixed/"))
    with pytest.raises(ResolveError):
        await guard.addresses(parse_target("http://gone/"))


async def test_an_address_needs_no_resolver() -> None:
    table = Table()
    guard = EgressGuard(EgressPolicy(), table)
    assert await guard.addresses(parse_target("http://1.1.1.1/")) == ("1.1.1.1",)
    await guard.close()
    assert table.closed


def test_refusal_gives_a_word_or_nothing() -> None:
    assert refusal("1.1.1.1") is None
    assert refusal("10.0.0.1") == "private"
