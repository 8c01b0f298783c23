"""`said_hash`: 16 bytes that tell whether a message says the same as one whose text is only in an archive.

PostgreSQL makes it of the content and of the payload as it stores that: equal payloads have equal hashes, in whatever
order their keys were sent.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from django.db import connection
from django.db.models import BinaryField, Func, TextField, Value
from django.db.models.functions import MD5, Cast, Concat

SAID_HASH = Func(
    MD5(Concat(MD5("content"), Cast("payload", TextField()))),
    Value("hex"),
    function="decode",
    output_field=BinaryField(),
)
_OF_PAYLOADS_SQL = """
SELECT md5(content || payload::text) FROM unnest(%s::text[], %s::text[]::jsonb[]) WITH ORDINALITY AS
    sent (content, payload, position) ORDER BY position
"""


def said_hashes(said: Sequence[tuple[str, Any]]) -> list[bytes]:
    """Return the hash of each content with its payload; by one statement if there are payloads, without one if not."""
    of_contents = [_md5(content) for content, _payload in said]
    with_payload = [position for position, (_content, payload) in enumerate(said) if payload is not None]
    hashes = [_md5(content) for content in of_contents]
    if with_payload:
        columns = [of_contents[n] for n in with_payload], [json.dumps(said[n][1]) for n in with_payload]
        with connection.cursor() as cursor:
            cursor.execute(_OF_PAYLOADS_SQL, columns)
            for position, (of_both,) in zip(with_payload, cursor.fetchall(), strict=True):
                hashes[position] = of_both
    return [bytes.fromhex(digest) for digest in hashes]


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
