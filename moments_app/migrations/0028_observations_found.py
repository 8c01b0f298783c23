"""Observations are found by their words like facts, be they waiting or part of a stream's text."""

from django.db import migrations

from sessions_app.word_search import recall_anew

TABLE = "moments_app_memoryatom"
SCOPE = "COALESCE('u' || user_id, 's' || stream_id)"
FACTS = "state = 'active' AND atom_type = 'fact'"
FOUND = "state <> 'evicted'"


def index(name: str, condition: str) -> migrations.RunSQL:
    """Built beside the traffic; one that an interrupted build left is made anew."""
    words = f"public.memory_words({SCOPE}, search_vector)"
    made = f"CREATE INDEX CONCURRENTLY {name} ON {TABLE} USING gin ({words}) WITH (gin_pending_list_limit = 256)"
    gone = f"DROP INDEX CONCURRENTLY IF EXISTS {name}"
    return migrations.RunSQL([gone, f"{made} WHERE {condition}"], gone)


def no_index(name: str, condition: str) -> migrations.RunSQL:
    """The other way round."""
    return migrations.RunSQL(index(name, condition).reverse_sql, index(name, condition).sql)


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("moments_app", "0027_stream_lines")]

    operations = [
        index(f"{TABLE}_found", FOUND),
        recall_anew(TABLE, scope=SCOPE, time="formed_at", condition=FOUND, before=FACTS),
        no_index(f"{TABLE}_words", FACTS),
    ]
