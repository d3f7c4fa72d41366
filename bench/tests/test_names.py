"""The product's own resolver finds tenants by the rig's name server, and nobody else."""

import asyncio
from uuid import uuid4

import pytest
from dnslib import DNSRecord

from bench.names import NameServer, answer, host_of
from tocsin.executor.resolver import AiodnsLookup, ResolveError


async def test_the_products_resolver_finds_every_tenant() -> None:
    async with NameServer() as names:
        lookup = AiodnsLookup((names.address,))
        try:
            found = await asyncio.gather(*(lookup.lookup(host_of(tenant)) for tenant in range(100)))
            assert {answer.addresses for answer in found} == {("127.0.0.1",)}
            assert found[0].ttl == 60
            with pytest.raises(ResolveError):
                await lookup.lookup(f"{uuid4()}.test")
        finally:
            await lookup.close()


def test_an_answer_bears_the_id_of_its_own_question() -> None:
    for _ in range(2):
        question = DNSRecord.question(host_of(7))
        made = answer(bytes(question.pack()))
        assert made is not None
        reply = DNSRecord.parse(made)
        assert reply.header.id == question.header.id
        assert str(reply.a.rdata) == "127.0.0.1"


def test_what_is_no_question_gets_no_answer() -> None:
    assert answer(b"") is None
    assert answer(b"\x12\x34garbage") is None
