"""API keys: how a new one is made, and the hash that alone is stored."""

import hashlib
import secrets
from collections.abc import Callable
from typing import Final

PREFIX: Final = "tocsin_"
"""What every key begins with, so that scanners for leaked secrets can know one."""

_SECRET_BYTES: Final = 32


def new_key(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> tuple[str, bytes]:
    """A new key, `tocsin_` and 64 hexadecimal digits (256 random bits), and its hash.

    The text is shown once, to the person who asked for it; only the hash is stored.
    `random_bytes` must be a source fit for secrets.
    """
    text = PREFIX + random_bytes(_SECRET_BYTES).hex()
    return text, hash_key(text)


def hash_key(text: str) -> bytes:
    """The SHA-256 of a key. Plain, because 256 random bits leave nothing to guess and nothing to salt."""
    return hashlib.sha256(text.encode()).digest()
