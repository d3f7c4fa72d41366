"""Tenants, their keys and their cells, whoever keeps the store; and what is recorded of changes to them."""

from dataclasses import replace
from uuid import UUID

import pytest

from store_bench import Bench
from store_builders import a_lease, a_tenant
from tocsin.common.errors import ConflictError, NotFoundError
from tocsin.common.ids import shard_of
from tocsin.common.store.tenants import Tenant


async def check_generations_grow_in_every_cell(bench: Bench) -> None:
    tenants = bench.store.tenants
    assert await tenants.generation() == 0
    assert await tenants.next_generation() == 1
    cell = await tenants.open_cell(await a_tenant(bench), 1)
    assert await tenants.next_generation() == 2
    assert {placement.generation for placement in await tenants.placements()} == {2}
    await tenants.set_executors("shared", 5)
    assert {p.cell: p.executors for p in await tenants.placements()} == {"shared": 5, cell: 1}


async def check_tenants_have_names_secrets_and_keys(bench: Bench) -> None:
    tenants = bench.store.tenants
    tenant = Tenant(bench.ids.new(), "acme", 0, 2.0, 7, 3)
    await tenants.insert(tenant, ["new", "old"])
    with pytest.raises(ConflictError):
        await tenants.insert(Tenant(bench.ids.new(), "acme", 0, 1.0, 1, None), [])
    found = await tenants.find(name="acme")
    assert found is not None
    assert (found.id, found.shard, found.max_in_flight, found.weight) == (tenant.id, shard_of(tenant.id), 7, 2.0)
    assert await tenants.find(tenant_id=tenant.id) == found
    assert await tenants.find(name="nobody") is None
    assert await tenants.secrets([tenant.id, bench.ids.new()]) == {tenant.id: ("new", "old")}
    key = bench.ids.new()
    await tenants.insert_key(key, tenant.id, "ci", b"hash")
    assert await tenants.find_key(b"hash") == (key, tenant.id)
    assert await tenants.find_key(b"other") is None
    assert await tenants.revoke_key(key)
    assert not await tenants.revoke_key(key)
    assert await tenants.find_key(b"hash") is None
    (shown,) = await tenants.keys(tenant.id)
    assert (shown.id, shown.name, shown.revoked_at is None) == (key, "ci", False)


async def check_owners_read_new_limits(bench: Bench) -> None:
    """Executors go on with the lease and the shards that they have."""
    tenants = bench.store.tenants
    tenant, other = await a_tenant(bench), await a_tenant(bench)
    lease = await a_lease(bench)
    await bench.store.leases.take_shards(lease, "shared", 64)
    changed = await tenants.set_limits(
        tenant, lambda old: replace(old, weight=2.5, max_in_flight=7, max_in_flight_per_endpoint=3)
    )
    assert (changed.weight, changed.max_in_flight, changed.max_in_flight_per_endpoint) == (2.5, 7, 3)
    owned = {served.tenant.id: served.tenant for served in await bench.other.leases.owned_tenants(lease)}
    assert owned[tenant] == changed
    assert (owned[other].weight, owned[other].max_in_flight) == (1.0, 100)
    await tenants.set_limits(tenant, lambda old: replace(old, max_in_flight_per_endpoint=None))
    assert await tenants.find(tenant_id=tenant) == replace(changed, max_in_flight_per_endpoint=None)
    with pytest.raises(NotFoundError):
        await tenants.set_limits(bench.ids.new(), lambda old: old)


async def check_only_limits_are_set(bench: Bench) -> None:
    """Not the shard: a move is asked for otherwise, and its owner's to make."""
    tenant = await a_tenant(bench)
    before = await bench.store.tenants.find(tenant_id=tenant)
    assert before is not None
    await bench.store.tenants.set_limits(tenant, lambda old: replace(old, weight=3.0, shard=old.shard + 1, name="x"))
    assert await bench.store.tenants.find(tenant_id=tenant) == replace(before, weight=3.0)


async def check_a_cap_leaves_a_call_for_each_shard(bench: Bench) -> None:
    """Rule 1: k <= cap, whichever of the two is changed."""
    tenants = bench.store.tenants
    tenant = await a_tenant(bench)
    await tenants.set_limits(tenant, lambda old: replace(old, max_in_flight=3))
    with pytest.raises(ConflictError, match="need a cap of 4"):
        await tenants.open_cell(tenant, 4)
    assert [placement.cell for placement in await tenants.placements()] == ["shared"]
    await tenants.open_cell(tenant, 3)
    with pytest.raises(ConflictError, match="need a cap of 3"):
        await tenants.set_limits(tenant, lambda old: replace(old, max_in_flight=2))
    found = await tenants.find(tenant_id=tenant)
    assert found is not None
    assert found.max_in_flight == 3


async def check_a_cell_is_opened_once(bench: Bench) -> None:
    tenants = bench.store.tenants
    tenant = await a_tenant(bench)
    cell = await tenants.open_cell(tenant, 2)
    with pytest.raises(ConflictError, match="demote it first"):
        await tenants.open_cell(tenant, 5)
    assert [shard for shard, _ in await tenants.cell_shards(cell)] == [64, 65]
    with pytest.raises(NotFoundError):
        await tenants.open_cell(bench.ids.new(), 1)


async def check_changes_of_tenants_are_recorded(bench: Bench) -> None:
    tenants = bench.store.tenants
    tenant = Tenant(bench.ids.new(), "acme", 0, 2.0, 7, None)
    key = bench.ids.new()
    await tenants.insert(tenant, ["whsec_hush"])
    await tenants.set_limits(tenant.id, lambda old: replace(old, max_in_flight=9))
    await tenants.insert_key(key, tenant.id, "ci", b"hush")
    cell = await tenants.open_cell(tenant.id, 2)
    await tenants.close_cell(cell, tenant.id)
    await tenants.revoke_key(key)
    entries = await bench.audit()
    assert {(entry.tenant_id, entry.actor) for entry in entries} == {(tenant.id, bench.store.name)}
    limits = {"weight": 2.0, "max_in_flight": 7, "max_in_flight_per_endpoint": None}
    assert [(entry.action, entry.target, entry.detail) for entry in entries] == [
        ("tenant.create", tenant.id, {"name": "acme", **limits}),
        ("tenant.set", tenant.id, {"max_in_flight": 9}),
        ("key.create", key, {"name": "ci"}),
        ("tenant.promote", tenant.id, {"cell": cell, "executors": 2}),
        ("tenant.demote", tenant.id, {"cell": cell}),
        ("key.revoke", key, {}),
    ]


async def check_what_changes_nothing_is_not_recorded(bench: Bench) -> None:
    tenants = bench.store.tenants
    tenant = await a_tenant(bench)
    cell = await tenants.open_cell(tenant, 1)
    await tenants.close_cell(cell, tenant)
    await tenants.set_limits(tenant, lambda old: replace(old, weight=0.1))
    count = len(await bench.audit())
    await tenants.set_limits(tenant, lambda old: old)
    await tenants.set_limits(tenant, lambda old: replace(old, weight=0.1))
    assert await tenants.close_cell(cell, tenant)
    assert not await tenants.close_cell("shared", tenant)
    assert not await tenants.revoke_key(bench.ids.new())
    for refused in (
        tenants.open_cell(tenant, 1),
        tenants.insert(Tenant(bench.ids.new(), (await _named(bench, tenant)), 0, 1.0, 1, None), []),
        tenants.set_limits(tenant, lambda old: replace(old, max_in_flight=0)),
    ):
        with pytest.raises(ConflictError):
            await refused
    assert len(await bench.audit()) == count


async def _named(bench: Bench, tenant_id: UUID) -> str:
    tenant = await bench.store.tenants.find(tenant_id=tenant_id)
    assert tenant is not None
    return tenant.name
