"""Signatures by Standard Webhooks (its "Signature scheme"): HMAC-SHA256 over `id.timestamp.body`.

Tenants verify with any Standard Webhooks library. Ours takes bodies as text only, and a task's body
may be any bytes, so the few lines of the scheme stand here and the library verifies them in the tests.
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from tocsin.executor.transport.port import Headers

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the scheme's prefix, not a secret


class Signer:
    """Signs with each of a tenant's keys: while they rotate, a receiver may hold the old one or the new.

    Raises:
        ValueError: a secret is not base64 of at least one byte, with or without its prefix.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._keys = tuple(_key(secret) for secret in secrets)

    def headers(self, message_id: str, now: datetime, body: bytes) -> Headers:
        """`webhook-id` (of a call: its run's id, the same on every attempt), `-timestamp` (of this attempt) and
        `-signature` (one per key, blanks between them); nothing without a key."""
        if not self._keys:
            return ()
        timestamp = str(int(now.timestamp()))
        content = f"{message_id}.{timestamp}.".encode("ascii") + body
        signatures = " ".join(
            "v1," + base64.b64encode(hmac.digest(key, content, "sha256")).decode("ascii") for key in self._keys
        )
        return (
            ("webhook-id", message_id),
            ("webhook-timestamp", timestamp),
            ("webhook-signature", signatures),
        )


def _key(secret: str) -> bytes:
    text = secret.removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ValueError("a signing secret must be base64, at least one byte of it")
    return key
