"""Making tenants and keys: the one place, for the command line and the demo."""

import base64
import random
import secrets
from collections.abc import Callable
from uuid import UUID

from tocsin.common.clock import Clock
from tocsin.common.errors import FieldError
from tocsin.common.ids import Ids, shard_of
from tocsin.common.keys import new_key
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.store.tenants import Tenant

MAX_IN_FLIGHT = 1_000
MAX_NAME = 200
TENANTS_CHANGED = "tenants"
"""The notification on which executors read their tenants anew at once."""

_SECRET_BYTES = 32


def new_signing_secret() -> str:
    """A signing secret as Standard Webhooks writes it: `whsec_` and the base64 of 256 random bits."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


async def make_tenant(
    store: PostgresStore,
    clock: Clock,
    name: str,
    *,
    weight: float = 1.0,
    max_in_flight: int = MAX_IN_FLIGHT,
    max_per_endpoint: int | None = None,
) -> tuple[Tenant, str]:
    """Adds a tenant and tells the executors; returns it with its signing secret.

    Raises:
        ConflictError: the name is taken.
        FieldError: it has not 1 to 200 characters.
    """
    if not 1 <= len(name) <= MAX_NAME:
        raise FieldError("NAME", f"must have 1 to {MAX_NAME} characters")
    tenant_id = Ids(clock, random.SystemRandom()).new()
    tenant = Tenant(tenant_id, name, shard_of(tenant_id), weight, max_in_flight, max_per_endpoint)
    secret = new_signing_secret()
    await store.tenants.insert(tenant, [secret])
    await store.tasks.notify(TENANTS_CHANGED)
    return tenant, secret


async def set_limits(store: PostgresStore, tenant_id: UUID, change: Callable[[Tenant], Tenant]) -> Tenant:
    """Applies `change` to a tenant's weight and caps and tells the executors; returns it.

    Raises:
        NotFoundError; ConflictError: fewer calls in flight than it has executors of its own.
    """
    tenant = await store.tenants.set_limits(tenant_id, change)
    await store.tasks.notify(TENANTS_CHANGED)
    return tenant


async def make_key(store: PostgresStore, clock: Clock, tenant_id: UUID, name: str) -> tuple[UUID, str]:
    """Adds an API key; returns its id and its text, which nobody can read again."""
    key_id = Ids(clock, random.SystemRandom()).new()
    text, key_hash = new_key()
    await store.tenants.insert_key(key_id, tenant_id, name, key_hash)
    return key_id, text
