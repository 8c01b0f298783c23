"""Create the item store."""

import django.contrib.postgres.indexes
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import sessions_app.models.searched
from sessions_app.limited_operators import APPLICATIONS, let_operators
from sessions_app.migrations._word_search import _UNCOUNTED_SQL, MOST_READ
from sessions_app.row_security import ACTING, ACTING_APPLICATION, IS_REQUEST, PERSON, ROLE

TABLE = "moments_app_storeditem"

# A request for a person sees the items of the person. Another request sees those that belong to no person.
PROTECT = migrations.RunSQL(
    f"""
        ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY;
        CREATE POLICY acting_user ON {TABLE} TO {ROLE} USING (
            application_id = (SELECT {ACTING_APPLICATION}) AND user_id IS NOT DISTINCT FROM (SELECT {ACTING})
        );
        GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLE} TO {ROLE};
    """,  # noqa: S608 (names of our own)
    f"""
        REVOKE ALL ON {TABLE} FROM {ROLE};
        DROP POLICY acting_user ON {TABLE};
        ALTER TABLE {TABLE} DISABLE ROW LEVEL SECURITY;
    """,
)
# Marks rows for indexing whose words are not those of their text; see `_word_search.py` of sessions_app.
TRIGGERS = migrations.RunSQL(
    f"""
        CREATE TRIGGER words_missing BEFORE INSERT ON {TABLE} FOR EACH ROW
            WHEN (NEW.search_vector IS NULL AND NEW.search_version > 0) EXECUTE FUNCTION memory_words_outdated();
        CREATE TRIGGER words_outdated BEFORE UPDATE OF text ON {TABLE} FOR EACH ROW
            WHEN (NEW.text IS DISTINCT FROM OLD.text AND NEW.text <> ''
                AND NEW.search_vector IS NOT DISTINCT FROM OLD.search_vector)
            EXECUTE FUNCTION memory_words_outdated();
    """,
    f"DROP TRIGGER words_outdated ON {TABLE}; DROP TRIGGER words_missing ON {TABLE}",
)
# A missing field compares like null. Values are only greater or less than values of the same type.
FITS = migrations.RunSQL(
    """
        CREATE FUNCTION memory_item_fits(value jsonb, conditions jsonb) RETURNS boolean
        LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
            SELECT COALESCE(bool_and(CASE comparison
                WHEN '$eq' THEN found = wanted
                WHEN '$ne' THEN found <> wanted
                ELSE jsonb_typeof(found) = jsonb_typeof(wanted) AND CASE comparison
                    WHEN '$gt' THEN found > wanted
                    WHEN '$gte' THEN found >= wanted
                    WHEN '$lt' THEN found < wanted
                    WHEN '$lte' THEN found <= wanted
                END
            END), true)
            FROM jsonb_array_elements(conditions) told (condition), LATERAL (
                SELECT condition ->> 1 AS comparison, condition -> 2 AS wanted, COALESCE(
                    value #> ARRAY(SELECT jsonb_array_elements_text(condition -> 0)), 'null'
                ) AS found
            ) compared
        $$;
    """,
    "DROP FUNCTION memory_item_fits(jsonb, jsonb)",
)
# Reads at most `MOST_READ` matches, and ranks those with the best `ts_rank` like BM25. In a request, the caller can't
# choose whose items are searched.
BEST = 500
CANDIDATES = f"""
    SELECT id, search_vector, updated_at FROM (
        SELECT id, search_vector, updated_at FROM {TABLE} WHERE application_id = $3 AND user_id %1$s
            AND namespace >= $1 AND ($5 IS NULL OR namespace < $5) AND search_vector @@ $7
            AND ($8 IS NULL OR memory_item_fits(value, $8))
        LIMIT {MOST_READ}
    ) match
    ORDER BY ts_rank(search_vector, $7) DESC, updated_at DESC LIMIT {BEST}
"""  # noqa: S608 (names of our own)
SEARCH = migrations.RunSQL(
    f"""
        CREATE FUNCTION search_{TABLE}(
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
        REVOKE ALL ON FUNCTION search_{TABLE} FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION search_{TABLE} TO {ROLE};
    """,  # noqa: S608 (names of our own)
    f"DROP FUNCTION search_{TABLE}",
)


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0125_help_texts"),
        ("sessions_app", "0057_help_texts"),
    ]

    operations = [
        migrations.CreateModel(
            name="StoredItem",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("search_vector", sessions_app.models.searched.WordsField(editable=False, null=True)),
                ("search_version", models.SmallIntegerField(db_default=0, default=1, editable=False)),
                (
                    "namespace",
                    models.CharField(
                        db_collation="C",
                        help_text="The labels of the namespace. Each label ends with the character U+001F.",
                        max_length=275,
                    ),
                ),
                ("key", models.CharField(db_collation="C", max_length=255)),
                ("value", models.JSONField(default=dict)),
                (
                    "text",
                    models.TextField(
                        blank=True,
                        help_text="The searchable text. Blank if searches don't find the item.",
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("updated_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "application",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The person whom the item belongs to. Blank if it belongs to no person.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "verbose_name": "stored item",
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(fields=["search_vector"], name="item_search"),
                    models.Index(
                        condition=models.Q(("search_version__lt", 1)), fields=["user", "id"], name="item_unindexed"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "application", "namespace", "key"),
                        name="item_unique_address",
                        nulls_distinct=False,
                    )
                ],
            },
        ),
        PROTECT,
        let_operators(TABLE, f"application_id = ANY ({APPLICATIONS})"),
        TRIGGERS,
        FITS,
        SEARCH,
    ]
