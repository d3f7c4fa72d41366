"""Page cursors: opaque texts that say where a listing goes on, and of which listing they are.

The position is the last id shown: ids are never used again, and pages go from the newest to older ones,
so no row is shown twice and none that was there when paging began is left out. What is made while a
client pages is newer and belongs before its first page; with several API processes whose clocks differ, an
id made meanwhile may lie among pages already read.

A cursor is no key to anything: each listing is read within its tenant, whatever the cursor says. The
check sum only tells a mistaken cursor from a right one.
"""

import base64
import hashlib
from typing import Final
from uuid import UUID

from tocsin.common.errors import FieldError

_SUM_BYTES: Final = 8
_LENGTH: Final = 16 + _SUM_BYTES


def encode_cursor(last: UUID, listing: str, *scope: UUID) -> str:
    """The cursor after `last`, in the listing of this name and scope (the tenant first)."""
    return base64.urlsafe_b64encode(last.bytes + _sum(last, listing, scope)).decode("ascii")


def decode_cursor(text: str, listing: str, *scope: UUID) -> UUID:
    """The id after which a listing goes on.

    Raises:
        FieldError: it is not a cursor of this listing.
    """
    try:
        data = base64.urlsafe_b64decode(text.encode("ascii"))
    except ValueError:  # of both: binascii.Error and UnicodeEncodeError are ones
        data = b""
    if len(data) == _LENGTH:
        last = UUID(bytes=data[:16])
        if text == encode_cursor(last, listing, *scope):
            return last
    raise FieldError("cursor", "must be the next_cursor of an earlier page of this very listing")


def _sum(last: UUID, listing: str, scope: tuple[UUID, ...]) -> bytes:
    parts = b"".join(part.bytes for part in (last, *scope))
    return hashlib.blake2b(parts, digest_size=_SUM_BYTES, person=listing.encode()).digest()
