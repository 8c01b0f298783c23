"""The item store, with searches by words and by meaning, and the tokens of served contexts by application and day."""

import django.contrib.postgres.indexes
import django.db.models.deletion
import django.utils.timezone
import pgvector.django.halfvec
from django.db import migrations, models

import sessions_app.models.searched
from moments_app.migrations._vector_search import EXACT
from sessions_app.limited_operators import APPLICATIONS, let_operators, seen
from sessions_app.migrations._word_search import _UNCOUNTED_SQL, MOST_READ
from sessions_app.row_security import ACTING, ACTING_APPLICATION, IS_REQUEST, PERSON, ROLE

USAGE, ITEMS, VECTORS = "moments_app_contextusage", "moments_app_storeditem", "moments_app_itemembedding"
OF_APPLICATION = f"application_id = ANY ({APPLICATIONS})"
ITS_ITEM = seen(VECTORS, ITEMS, "source_id")

# A request for a person sees the items of the person. Another request sees those that belong to no person.
PROTECT_ITEMS = migrations.RunSQL(
    f"""
        ALTER TABLE {ITEMS} ENABLE ROW LEVEL SECURITY;
        CREATE POLICY acting_user ON {ITEMS} TO {ROLE} USING (
            application_id = (SELECT {ACTING_APPLICATION}) AND user_id IS NOT DISTINCT FROM (SELECT {ACTING})
        );
        GRANT SELECT, INSERT, UPDATE, DELETE ON {ITEMS} TO {ROLE};
    """  # noqa: S608 (names of our own)
)
# Marks rows for indexing whose words are not those of their text; see `_word_search.py` of sessions_app.
TRIGGERS = migrations.RunSQL(
    f"""
        CREATE TRIGGER words_missing BEFORE INSERT ON {ITEMS} FOR EACH ROW
            WHEN (NEW.search_vector IS NULL AND NEW.search_version > 0) EXECUTE FUNCTION memory_words_outdated();
        CREATE TRIGGER words_outdated BEFORE UPDATE OF text ON {ITEMS} FOR EACH ROW
            WHEN (NEW.text IS DISTINCT FROM OLD.text AND NEW.text <> ''
                AND NEW.search_vector IS NOT DISTINCT FROM OLD.search_vector)
            EXECUTE FUNCTION memory_words_outdated();
    """
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
    """
)
# Reads at most `MOST_READ` matches, and ranks those with the best `ts_rank` like BM25. In a request, the caller can't
# choose whose items are searched.
BEST = 500
LIVE = "(expires_at IS NULL OR expires_at > statement_timestamp())"
CANDIDATES = f"""
    SELECT id, search_vector, updated_at FROM (
        SELECT id, search_vector, updated_at FROM {ITEMS} WHERE application_id = $3 AND user_id %1$s
            AND namespace >= $1 AND ($5 IS NULL OR namespace < $5) AND search_vector @@ $7 AND {LIVE}
            AND ($8 IS NULL OR memory_item_fits(value, $8))
        LIMIT {MOST_READ}
    ) match
    ORDER BY ts_rank(search_vector, $7) DESC, updated_at DESC LIMIT {BEST}
"""  # noqa: S608 (names of our own)
SEARCH = migrations.RunSQL(
    f"""
        CREATE FUNCTION search_{ITEMS}(
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
        REVOKE ALL ON FUNCTION search_{ITEMS} FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION search_{ITEMS} TO {ROLE};
    """  # noqa: S608 (names of our own)
)
# A row stays until the next `prune_items`. An item that is stored at its address is a new one.
NEW_AGAIN = migrations.RunSQL(
    f"""
        CREATE FUNCTION memory_item_is_new() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN NEW.created_at := NEW.updated_at; RETURN NEW; END $$;
        CREATE TRIGGER new_again BEFORE UPDATE OF value ON {ITEMS} FOR EACH ROW
            WHEN (OLD.expires_at <= statement_timestamp()) EXECUTE FUNCTION memory_item_is_new();
    """
)
# A request sees the vectors of the items that it sees.
PROTECT_VECTORS = migrations.RunSQL(
    f"""
        ALTER TABLE {VECTORS} ENABLE ROW LEVEL SECURITY;
        CREATE POLICY acting_user ON {VECTORS} TO {ROLE} USING ({ITS_ITEM});
        GRANT SELECT, INSERT, UPDATE, DELETE ON {VECTORS} TO {ROLE};
    """
)
FORGET = migrations.RunSQL(
    f"""
        CREATE FUNCTION memory_item_reworded() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN DELETE FROM {VECTORS} WHERE source_id = NEW.id; RETURN NULL; END $$;
        CREATE TRIGGER reworded AFTER UPDATE OF text ON {ITEMS} FOR EACH ROW
            WHEN (NEW.text IS DISTINCT FROM OLD.text) EXECUTE FUNCTION memory_item_reworded();
    """  # noqa: S608 (names of our own)
)
# Up to `EXACT` items, it reads the vectors of all items in the namespaces, which is exact. Of more items, it searches
# the index of nearest neighbors until enough of them are in the namespaces. In a request, the caller can't choose whose
# items are searched.
OWN = "item.application_id = $1 AND item.user_id %3$s AND item.namespace >= $2 AND ($3 IS NULL OR item.namespace < $3)"
NEAREST = migrations.RunSQL(
    f"""
        CREATE FUNCTION nearest_{VECTORS}(
            person bigint, application bigint, first text, beyond text, conditions jsonb, model bigint,
            dimensions integer, query text, most integer
        ) RETURNS TABLE (found bigint, score float8)
        LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
        SET search_path = pg_catalog, public, pg_temp
        SET max_parallel_workers_per_gather = 0 SET enable_seqscan = off AS $$
        DECLARE
            acting bigint := {PERSON};
            owner bigint := CASE WHEN {IS_REQUEST} THEN {ACTING_APPLICATION} ELSE application END;
            whose text := CASE WHEN acting IS NULL THEN 'IS NULL' ELSE format('= %s', acting) END;
            are_few boolean;
        BEGIN
            -- Not in the function's head: only a superuser may name there what the extension has not yet defined.
            PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                set_config('hnsw.ef_search', '100', true);
            EXECUTE format(
                'SELECT count(*) < {EXACT} FROM (SELECT FROM {ITEMS} item WHERE {OWN} LIMIT {EXACT}) own',
                dimensions, model, whose
            ) INTO are_few USING owner, first, beyond;
            RETURN QUERY EXECUTE format($q$
                SELECT id, 1 - distance FROM (
                    SELECT * FROM (
                        SELECT item.id, embedding.vector::halfvec(%1$s) <=> $4::halfvec(%1$s) AS distance
                        FROM {ITEMS} item JOIN {VECTORS} embedding ON embedding.source_id = item.id
                        WHERE {OWN} AND (item.expires_at IS NULL OR item.expires_at > statement_timestamp())
                        AND ($5 IS NULL OR memory_item_fits(item.value, $5))
                        AND embedding.model_id = %2$s AND embedding.vector IS NOT NULL %4$s
                    ) own ORDER BY distance LIMIT $6
                ) own ORDER BY distance, id DESC
            $q$, dimensions, model, whose, CASE WHEN are_few THEN 'OFFSET 0' ELSE '' END)
            USING owner, first, beyond, query, conditions, most;
        END $$;
        REVOKE ALL ON FUNCTION nearest_{VECTORS} FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION nearest_{VECTORS} TO {ROLE};
    """  # noqa: S608 (names of our own)
)
# Builds the index of nearest neighbors for a kind of vectors. Models that are there already get that of items.
KINDS = ", ".join(f"'moments_app_{kind}embedding'" for kind in ("fact", "moment", "turn", "item"))
INDEXES = migrations.RunSQL(
    f"""
        CREATE OR REPLACE FUNCTION index_vectors(kind text, model bigint) RETURNS void
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
        DECLARE
            width integer := (SELECT known.dimensions FROM moments_app_embeddingmodel known WHERE known.id = model);
            index text := kind || '_nearest_' || model;
        BEGIN
            IF width IS NULL OR kind NOT IN ({KINDS}) THEN
                RAISE EXCEPTION 'There are no such vectors.';
            END IF;
            PERFORM pg_advisory_xact_lock(hashtextextended(index, 0));
            IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass(index) AND indisvalid) THEN
                RETURN;
            END IF;
            EXECUTE format('DROP INDEX IF EXISTS %I', index);
            EXECUTE format(
                'CREATE INDEX %I ON %I USING hnsw ((vector::halfvec(%s)) halfvec_cosine_ops) WHERE model_id = %s',
                index, kind, width, model
            );
        END $$;
        SELECT index_vectors('moments_app_itemembedding', id) FROM moments_app_embeddingmodel;
    """  # noqa: S608 (names of our own)
)


class Migration(migrations.Migration):
    replaces = [
        ("moments_app", "0123_help_texts"),
        ("moments_app", "0124_context_usage"),
        ("moments_app", "0125_help_texts"),
        ("moments_app", "0126_item_store"),
        ("moments_app", "0128_help_texts"),
        ("moments_app", "0129_help_texts"),
        ("moments_app", "0130_help_texts"),
        ("moments_app", "0131_item_ttl"),
        ("moments_app", "0132_index_of_expiring_items"),
        ("moments_app", "0133_vectors_of_items"),
        ("moments_app", "0134_help_texts"),
    ]

    dependencies = [
        ("moments_app", "0122_without_versions_of_texts"),
        ("sessions_app", "0052_squashed_0064_without_profile_versions"),
    ]

    operations = [
        migrations.CreateModel(
            name="ContextUsage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(help_text="Day in UTC.")),
                ("contexts", models.BigIntegerField()),
                ("context_tokens", models.BigIntegerField()),
                ("transcript_tokens", models.BigIntegerField()),
                (
                    "application",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["day"], name="context_usage_day")],
                "constraints": [models.UniqueConstraint(fields=("application", "day"), name="context_usage_unique")],
            },
        ),
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
                        help_text="The text that is searched. If the text is blank, searches don't find the item.",
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
                (
                    "ttl",
                    models.FloatField(
                        blank=True,
                        help_text="Minutes from the latest write or read until the item expires. Blank if the item "
                        "doesn't expire.",
                        null=True,
                        verbose_name="time to live",
                    ),
                ),
                (
                    "expires_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Time when the item expires. A write, or a read that refreshes the item, postpones "
                        "this time.",
                        null=True,
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
                    models.Index(
                        condition=models.Q(("expires_at__isnull", False)), fields=["expires_at"], name="item_expires"
                    ),
                    models.Index(
                        condition=models.Q(("text", ""), _negated=True), fields=["user", "id"], name="item_with_text"
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
        migrations.CreateModel(
            name="ItemEmbedding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "said_at",
                    models.DateTimeField(
                        help_text="Time when the embedded text was said, copied from its source to speed up searches."
                    ),
                ),
                (
                    "vector",
                    pgvector.django.halfvec.HalfVectorField(
                        help_text="Vector of the text. Blank if the endpoint rejected the text.", null=True
                    ),
                ),
                (
                    "refusal",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The endpoint's latest error for the text. Blank if the endpoint accepted the text.",
                        max_length=255,
                    ),
                ),
                (
                    "refusals",
                    models.PositiveSmallIntegerField(
                        db_default=0, default=0, help_text="Number of times that the endpoint has rejected the text."
                    ),
                ),
                (
                    "ask_again_at",
                    models.DateTimeField(
                        help_text="When a rejected text will be sent again. If blank, the text is sent with the next "
                        "batch.",
                        null=True,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "model",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="moments_app.embeddingmodel",
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="embeddings",
                        to="moments_app.storeditem",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "abstract": False,
                "indexes": [
                    models.Index(fields=["user", "model"], name="itemembedding_user"),
                    models.Index(
                        condition=models.Q(("vector", None)),
                        fields=["model", "ask_again_at"],
                        name="itemembedding_refused",
                    ),
                ],
                "constraints": [models.UniqueConstraint(fields=("source", "model"), name="itemembedding_unique")],
            },
        ),
        let_operators(USAGE, OF_APPLICATION),
        PROTECT_ITEMS,
        let_operators(ITEMS, OF_APPLICATION),
        TRIGGERS,
        FITS,
        SEARCH,
        NEW_AGAIN,
        PROTECT_VECTORS,
        let_operators(VECTORS, ITS_ITEM),
        FORGET,
        NEAREST,
        INDEXES,
    ]
