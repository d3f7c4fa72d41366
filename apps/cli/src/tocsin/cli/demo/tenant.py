"""The demo's tenant: made once, with its key in a file."""

from pathlib import Path

from tocsin.cli.files import read_text, write_private
from tocsin.cli.tenants import make_key, make_tenant
from tocsin.common.clock import Clock
from tocsin.common.keys import hash_key
from tocsin.common.store.postgres.store import PostgresStore

NAME = "demo"


async def demo_key(store: PostgresStore, clock: Clock, file: Path) -> str:
    """The key of the demo's tenant, from `file` (mode 0600); makes tenant and key where they are missing."""
    tenant = await store.tenants.find(name=NAME)
    if tenant is None:
        tenant, _ = await make_tenant(store, clock, NAME)
    key = read_text(file)
    if key and (found := await store.tenants.find_key(hash_key(key))) and found[1] == tenant.id:
        return key
    _, key = await make_key(store, clock, tenant.id, NAME)
    write_private(file, key)
    return key
