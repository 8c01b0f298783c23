"""Let stored items expire."""

from importlib import import_module

from django.db import migrations, models

from sessions_app.migrations._word_search import _UNCOUNTED_SQL, MOST_READ
from sessions_app.row_security import ACTING_APPLICATION, IS_REQUEST, PERSON

TABLE = "moments_app_storeditem"
BEST = 500
LIVE = "(expires_at IS NULL OR expires_at > statement_timestamp())"
CANDIDATES = f"""
    SELECT id, search_vector, updated_at FROM (
        SELECT id, search_vector, updated_at FROM {TABLE} WHERE application_id = $3 AND user_id %1$s
            AND namespace >= $1 AND ($5 IS NULL OR namespace < $5) AND search_vector @@ $7 AND {LIVE}
            AND ($8 IS NULL OR memory_item_fits(value, $8))
        LIMIT {MOST_READ}
    ) match
    ORDER BY ts_rank(search_vector, $7) DESC, updated_at DESC LIMIT {BEST}
"""  # noqa: S608 (names of our own)
SEARCH = migrations.RunSQL(
    f"""
        CREATE OR REPLACE FUNCTION search_{TABLE}(
            person bigint, application bigint, first text, beyond text, words tsquery, queries text[],
            weights float8[], conditions jsonb, most integer
        ) RETURNS TABLE (found bigint, score float8)
        LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
        SET search_path = pg_catalog, public, pg_temp
        SET max_parallel_workers_per_gather = 0 SET enable_seqscan = off AS $$
        DECLARE
            acting bigint := {PERSON};
            owner bigint := CASE WHEN {IS_REQUEST} THEN {ACTING_APPLICATION} ELSE application END;
            whose text := CASE WHEN acting IS NULL THEN 'IS NULL' ELSE format('= %s', acting) END;
        BEGIN
            RETURN QUERY EXECUTE format(
                $q${_UNCOUNTED_SQL}$q$, format($q${CANDIDATES}$q$, whose), 'SELECT FROM candidate', 'updated_at'
            ) USING first, queries, owner, weights, beyond, most, words, conditions;
        END $$;
    """,
    f"DROP FUNCTION search_{TABLE};" + import_module("moments_app.migrations.0126_item_store").SEARCH.sql,
)
# A row stays until the next `prune_items`. An item that is stored at its address is a new one.
NEW_AGAIN = migrations.RunSQL(
    f"""
        CREATE FUNCTION memory_item_is_new() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN NEW.created_at := NEW.updated_at; RETURN NEW; END $$;
        CREATE TRIGGER new_again BEFORE UPDATE OF value ON {TABLE} FOR EACH ROW
            WHEN (OLD.expires_at <= statement_timestamp()) EXECUTE FUNCTION memory_item_is_new();
    """,
    f"DROP TRIGGER new_again ON {TABLE}; DROP FUNCTION memory_item_is_new()",
)


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0130_help_texts")]

    operations = [
        migrations.AddField(
            "storeditem",
            "ttl",
            models.FloatField(
                blank=True,
                help_text="Minutes from the latest write or read until the item expires. Blank if the item doesn't "
                "expire.",
                null=True,
                verbose_name="time to live",
            ),
        ),
        migrations.AddField(
            "storeditem",
            "expires_at",
            models.DateTimeField(
                blank=True, help_text="When the item expires if it isn't read or written before.", null=True
            ),
        ),
        SEARCH,
        NEW_AGAIN,
    ]
