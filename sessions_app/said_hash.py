"""`said_hash`: a 16-byte hash, to compare a message with one whose text is only in an archive.

PostgreSQL computes it from the content and the stored payload, so the order of a payload's keys doesn't matter.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from django.db import connection

# The hash of a row, in hexadecimal. It is raw SQL, because the ORM takes longer to build the expression than PostgreSQL
# to archive a person's turns. Column names are unqualified, so use it only in statements about one table.
SAID_HASH_SQL = "md5(md5(content) || COALESCE(payload::text, ''))"
_OF_PAYLOADS_SQL = f"""
SELECT {SAID_HASH_SQL} FROM unnest(%s::text[], %s::text[]::jsonb[]) WITH ORDINALITY AS
    sent (content, payload, position) ORDER BY position
"""  # noqa: S608 (our own expression)


def said_hashes(said: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the hashes of contents with their payloads. One query if there are payloads, none otherwise."""
    with_payload = [position for position, (_content, payload) in enumerate(said) if payload is not None]
    hashes = [_md5(_md5(content)) for content, _payload in said]
    if with_payload:
        columns = [said[n][0] for n in with_payload], [json.dumps(said[n][1]) for n in with_payload]
        with connection.cursor() as cursor:
            cursor.execute(_OF_PAYLOADS_SQL, columns)
            for position, (of_both,) in zip(with_payload, cursor.fetchall(), strict=True):
                hashes[position] = of_both
    return hashes


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
