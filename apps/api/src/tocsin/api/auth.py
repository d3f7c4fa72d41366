"""Who asks: API keys as Bearer tokens (RFC 6750, section 2.1)."""

from typing import Final, Protocol
from uuid import UUID

from aiohttp import hdrs, web  # noqa: TID251 - this app serves HTTP

from tocsin.api.problems import unauthorized
from tocsin.common.clock import Clock
from tocsin.common.keys import hash_key

KEPT_SECONDS: Final = 5.0
"""How long a key that was found is trusted without looking again, and so how long a revoked one may go on."""

MAX_KEPT: Final = 4_096


class KeyFinder(Protocol):
    async def find_key(self, key_hash: bytes) -> tuple[UUID, UUID] | None: ...


class Keys:
    """Finds the tenant of a key. Whatever the text is, the work is the same: one hash, one look by index.

    Only keys that exist are remembered, so that guesses fill no memory and a new key works at once.
    """

    def __init__(self, finder: KeyFinder, clock: Clock) -> None:
        self._finder = finder
        self._clock = clock
        self._kept: dict[bytes, tuple[UUID, float]] = {}

    async def tenant_of(self, text: str) -> UUID | None:
        """The tenant whose key this is; None if it is nobody's, or was revoked.

        Raises:
            StoreUnavailableError: the database cannot be asked.
        """
        key_hash = hash_key(text)
        kept = self._kept.get(key_hash)
        now = self._clock.monotonic()
        if kept is not None and now < kept[1]:
            return kept[0]
        found = await self._finder.find_key(key_hash)
        self._kept.pop(key_hash, None)
        if found is None:
            return None
        while len(self._kept) >= MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key_hash] = (found[1], now + KEPT_SECONDS)
        return found[1]


async def authenticate(request: web.Request, keys: Keys) -> UUID:
    """The tenant that sent the request.

    Raises:
        Problem: 401, whatever is wrong with the key.
        StoreUnavailableError: the database cannot be asked.
    """
    given = request.headers.getall(hdrs.AUTHORIZATION, [])
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    if scheme.lower() != "bearer":
        raise unauthorized()
    tenant_id = await keys.tenant_of(token.strip())
    if tenant_id is None:
        raise unauthorized()
    return tenant_id
