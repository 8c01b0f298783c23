"""`search_items`: the stored items that have words of a query, best first."""

import json
from collections.abc import Sequence

from django.db import connection

from moments_app.models.stored_item import Condition, range_of
from moments_app.recall.request import MOST_WORDS
from sessions_app import lexemes
from sessions_app.models import UserProfile
from sessions_app.rows import array_of, array_of_texts

_SQL = """
SELECT found, score FROM search_moments_app_storeditem(%s, %s, %s, %s, %s, %s, %s, %s, %s)
    WITH ORDINALITY AS result (found, score, place) ORDER BY place
"""


def search_items(
    user: UserProfile | None,
    application: int,
    prefix: Sequence[str],
    query: str,
    *,
    conditions: Sequence[Condition] = (),
    most: int,
) -> dict[int, float]:
    """Return the primary keys of items with their scores, best first.

    Args:
        user: the user whose items are searched; None: the items that belong to no user.
        application: the primary key of the application that owns the items.
        prefix: the labels with which the namespace of an item starts.
        query: any of its words may match.
        conditions: conditions on the value; see `StoredItemQuerySet.fitting`.
        most: the maximum number of items.
    """
    words = lexemes.words_of_query(query, MOST_WORDS)
    if not words:
        return {}
    queries = [" | ".join(f"'{stem}'" for stem in word.stems) for word in words]
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL,
            [
                user.pk if user else None,
                application,
                *range_of(prefix),
                " | ".join(queries),
                array_of_texts(queries),
                array_of(word.factor for word in words),
                json.dumps(conditions) if conditions else None,
                most,
            ],
        )
        return dict(cursor.fetchall())
