"""`said_hash`: 16 bytes that tell whether a message says the same as one whose text is only in an archive.

PostgreSQL makes it of the content and of the payload as it stores that: equal payloads have equal hashes, in whatever
order their keys were sent.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from django.db import connection

# Of a row, in hexadecimal; of columns by their bare names, for statements about turns alone. By hand, as the ORM takes
# longer to write it down than a person's turns take to be archived.
SAID_HASH_SQL = "md5(md5(content) || COALESCE(payload::text, ''))"
_OF_PAYLOADS_SQL = f"""
SELECT {SAID_HASH_SQL} FROM unnest(%s::text[], %s::text[]::jsonb[]) WITH ORDINALITY AS
    sent (content, payload, position) ORDER BY position
"""  # noqa: S608 (our own expression)


def said_hashes(said: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the hash of each content with its payload; by one statement if there are payloads, without one if not."""
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
